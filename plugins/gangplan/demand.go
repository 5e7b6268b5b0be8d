package gangplan

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Demand is what a gang still needs, with the pods that stand for it.
type Demand struct {
	planner.Demand
	// Pods are the members to place, in rank order, as Demand.Members; Infos likewise.
	Pods  []*corev1.Pod
	Infos []fwk.PodInfo
	// placed are the members that Demand.Placed describes, in its order.
	placed []Placed
	// samples holds, for each class, the index of its first member, and named its requests by name.
	samples []int
	named   [][]planner.ResourceAmount
	// Allocations are the claims that members share and that are still to be allocated, as Plan would
	// allocate them. DynamicResources allocates a claim when the first pod that uses it binds, and lets
	// no other pod come further before that.
	Allocations []Allocation
	// exact is set if a member has rules that arithmetic on nodes cannot express.
	exact bool
}

// Placed is a member that has its place already.
type Placed struct {
	UID  types.UID
	Node string
}

// classKey is everything that tells members of one gang apart for the scheduler, besides the rules
// that make a demand exact.
type classKey struct {
	Nodes    nodeRequirements
	Requests []planner.Amount
	Priority int32
	// Labels are those that pods on the nodes ask about to keep others away.
	Labels map[string]string `json:",omitempty"`
	// Apart says which pods on the nodes the member keeps away from.
	Apart []corev1.PodAffinityTerm `json:",omitempty"`
}

// NewDemand describes the pods, given in rank order, of which at least min must be placed, beside
// members that have their place already; those whose node is gone are left out. Constrain adds what the
// gang asks of the topology.
func (c *Cluster) NewDemand(logger klog.Logger, pods []*corev1.Pod, min int, placed []Placed) (*Demand, error) {
	d := &Demand{Pods: pods, Infos: make([]fwk.PodInfo, len(pods))}
	d.Members = make([]planner.Member, len(pods))
	d.Min = min
	for _, p := range placed {
		if id, ok := c.Node(p.Node); ok {
			d.placed = append(d.placed, p)
			d.Demand.Placed = append(d.Demand.Placed, planner.PlacedMember{Node: id})
		}
	}
	for i, pod := range pods {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
		}
		d.Infos[i] = info
	}
	takes, beyond := c.single(d.Infos)
	classes, repelled := map[string]int{}, c.repelledLabels()
	for i, pod := range pods {
		info := d.Infos[i]
		d.exact = d.exact || beyond[i] || needsExact(pod)
		if i > 0 && slices.Equal(takes[i], takes[i-1]) && alike(pod, pods[i-1], repelled) {
			d.Members[i] = d.Members[i-1]
			continue
		}
		d.exact = d.exact || c.asked.backed(info)
		requests := append(c.Requests(info), takes[i]...)
		requirements := requirementsOf(pod)
		key, err := json.Marshal(classKey{requirements, requests, corev1helpers.PodPriority(pod), pick(pod.Labels, repelled), antiAffinity(pod)})
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
		}
		class, known := classes[string(key)]
		if !known {
			class = len(d.Classes)
			classes[string(key)] = class
			e := c.eligibility.forPod(logger, pod, requirements.key(), c.byID)
			d.Classes = append(d.Classes, planner.Class{Requests: requests, Blocked: e.blocked, Causes: e.causes, Score: e.score()})
			d.samples = append(d.samples, i)
			d.named = append(d.named, c.named(requests))
		}
		d.Members[i] = planner.Member{Class: class}
	}
	return d, nil
}

// antiAffinity returns the terms by which a pod keeps away from others.
func antiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// repelledLabels are the keys of the labels by which pods on the nodes keep others away from
// themselves. Members that differ in other labels only, an index for one, are alike.
func (c *Cluster) repelledLabels() sets.Set[string] {
	keys := sets.New[string]()
	for _, info := range c.infoByID {
		for _, pod := range info.GetPodsWithRequiredAntiAffinity() {
			for _, term := range pod.GetRequiredAntiAffinityTerms() {
				requirements, _ := term.Selector.Requirements()
				for _, r := range requirements {
					keys.Insert(r.Key())
				}
			}
		}
	}
	return keys
}

// pick returns the labels with these keys.
func pick(labels map[string]string, keys sets.Set[string]) map[string]string {
	picked := map[string]string{}
	for key := range keys {
		if value, ok := labels[key]; ok {
			picked[key] = value
		}
	}
	return picked
}

// ClaimFor is what a member of the demand claims on a node.
func (c *Cluster) ClaimFor(d *Demand, member int, node planner.NodeID) Claim {
	class := d.Members[member].Class
	return Claim{Node: c.NodeName(node), Requests: d.Classes[class].Requests, named: d.named[class]}
}

func (c *Cluster) named(amounts []planner.Amount) []planner.ResourceAmount {
	out := make([]planner.ResourceAmount, len(amounts))
	for i, a := range amounts {
		out[i] = planner.ResourceAmount{Name: c.ResourceName(a.Resource), Value: a.Value}
	}
	return out
}

// Requests are a pod's requests as the scheduler counts them against nodes, and one pod. A sum of
// containers that is too large for an integer can come out negative; NodeResourcesFit takes that
// for nothing requested. Resources that it leaves to others are left out.
func (c *Cluster) Requests(info fwk.PodInfo) []planner.Amount {
	amounts := slices.DeleteFunc(c.amounts(info.CalculateResource().Resource), func(a planner.Amount) bool {
		return a.Value < 0 || c.asked.left(corev1.ResourceName(c.ResourceName(a.Resource)))
	})
	return append(amounts, planner.Amount{Resource: c.Resource(string(corev1.ResourcePods)), Value: 1})
}
