package gangplan

import (
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// What a preference counts for, in the proportion that kube-scheduler's default weights have: node
// affinity 2 and taints 3, each in hundredths.
const (
	affinityScore = 200
	taintScore    = 300
	// maxTaints bounds how many taints are held against a node.
	maxTaints = 100
)

// preference is what a pod likes in a node without needing it: its preferred node affinity, and no taint
// of effect PreferNoSchedule that it does not tolerate.
type preference struct {
	affinity    *nodeaffinity.PreferredSchedulingTerms
	total       int64 // the weights of all terms
	tolerations []corev1.Toleration
}

// preferenceOf reads a pod's preference. Terms that cannot be read count for nothing: the API server
// admits none.
func preferenceOf(pod *corev1.Pod) preference {
	p := preference{tolerations: pod.Spec.Tolerations}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil {
		return p
	}
	terms := a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	affinity, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return p
	}
	for _, t := range terms {
		p.total += int64(t.Weight)
	}
	if p.total > 0 {
		p.affinity = affinity
	}
	return p
}

// score is higher the more the pod likes the node; 0 if it is all the same to it.
func (p *preference) score(logger klog.Logger, node *corev1.Node) int32 {
	var score int64
	if p.affinity != nil {
		score = affinityScore * p.affinity.Score(node) / p.total
	}
	taints := 0
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule && !corev1helpers.TolerationsTolerateTaint(logger, p.tolerations, taint, true) {
			taints++
		}
	}
	return int32(score - taintScore*int64(min(taints, maxTaints)))
}

func (e *eligibility) setScore(i int, score int32) {
	if e.scores[i] != 0 {
		e.scored--
	}
	if score != 0 {
		e.scored++
	}
	e.scores[i] = score
}

// score returns the score of every node, nil if all are the same to the pods.
func (e *eligibility) score() []int32 {
	if e.scored == 0 {
		return nil
	}
	return e.scores
}
