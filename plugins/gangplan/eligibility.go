package gangplan

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

// eligibilityCacheSize bounds how many different sets of node requirements are remembered.
const eligibilityCacheSize = 256

// maxCauses bounds the distinct causes kept for an entry: taints come and go in a long life, and
// every node may have its own. The last of them stands for all that came too late.
const maxCauses = 1024

const (
	causeCordoned = "cordoned"
	causeSelector = "outside the node selector or affinity"
	causeOther    = "of no use for another cause"
)

// eligibility says which nodes a kind of pod may use and which it would like, by the planner's node order, and why not the
// others: 0 for a node it may use, otherwise an index into causes plus one.
type eligibility struct {
	blocked []uint16
	causes  []string

	// scores says how much the pods would like each node, and scored how many of them are not 0.
	scores []int32
	scored int

	nodes       []*corev1.Node // what blocked and scores were computed for
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	preference  preference
}

// eligibilityCache remembers eligibility by requirements. An entry is brought up to date by
// looking again only at nodes whose object changed.
type eligibilityCache struct {
	entries *lru.Cache
}

func newEligibilityCache() eligibilityCache {
	return eligibilityCache{entries: lru.New(eligibilityCacheSize)}
}

// nodeRequirements is everything in a pod that eligibility depends on.
type nodeRequirements struct {
	Selector    map[string]string                `json:",omitempty"`
	Affinity    *corev1.NodeSelector             `json:",omitempty"`
	Preferred   []corev1.PreferredSchedulingTerm `json:",omitempty"`
	Tolerations []corev1.Toleration              `json:",omitempty"`
}

func requirementsOf(pod *corev1.Pod) nodeRequirements {
	r := nodeRequirements{Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		r.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		r.Preferred = a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return r
}

// key identifies the requirements. Maps are written in key order, so equal requirements have
// equal keys.
func (r nodeRequirements) key() string {
	b, err := json.Marshal(r)
	if err != nil {
		// Only plain API types are in there, and those always marshal.
		panic(fmt.Sprintf("marshalling node requirements: %v", err))
	}
	return string(b)
}

// forPod returns which of the nodes, in the planner's order, the pod may use.
func (c *eligibilityCache) forPod(logger klog.Logger, pod *corev1.Pod, key string, nodes []*corev1.Node) *eligibility {
	var e *eligibility
	if got, ok := c.entries.Get(key); ok {
		e = got.(*eligibility)
	} else {
		e = &eligibility{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations, preference: preferenceOf(pod)}
		c.entries.Add(key, e)
	}
	if len(e.nodes) != len(nodes) || len(e.causes) == maxCauses {
		e.causes = nil
		e.nodes = make([]*corev1.Node, len(nodes))
		e.blocked = make([]uint16, len(nodes))
		e.scores, e.scored = make([]int32, len(nodes)), 0
	}
	for i, node := range nodes {
		if e.nodes[i] != node {
			e.nodes[i] = node
			e.blocked[i] = e.index(e.cause(logger, node))
			e.setScore(i, e.preference.score(logger, node))
		}
	}
	return e
}

// cause says why the pod may not use the node, or returns "".
func (e *eligibility) cause(logger klog.Logger, node *corev1.Node) string {
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(logger, e.tolerations, &corev1.Taint{
		Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
	}, true) {
		return causeCordoned
	}
	if taint, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, e.tolerations, doNotSchedule, true); untolerated {
		return "with taint " + taint.ToString()
	}
	if match, err := e.affinity.Match(node); err != nil || !match {
		return causeSelector
	}
	return ""
}

func doNotSchedule(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

func (e *eligibility) index(cause string) uint16 {
	if cause == "" {
		return 0
	}
	for i, known := range e.causes {
		if known == cause {
			return uint16(i + 1)
		}
	}
	switch len(e.causes) {
	case maxCauses:
		return maxCauses
	case maxCauses - 1:
		cause = causeOther
	}
	e.causes = append(e.causes, cause)
	return uint16(len(e.causes))
}
