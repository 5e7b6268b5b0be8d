package preemption

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/plugins/stage"
)

func TestBudgetsAreCountedAcrossTheWholeUnit(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, inGang("low")(on("n0", i, 1)).Label("tier", "web").Obj())
	}
	for allowed, want := range map[int32]int{0: 3, 1: 2, 3: 0, 9: 0} {
		s := newScene(t, nil, pods, stage.Nodes(1, 8)...)
		s.budget("web", allowed, map[string]string{"tier": "web"})
		s.budget("other", 0, map[string]string{"tier": "db"})
		if got := s.candidates(100).Units[0].Violations; got != want {
			t.Errorf("%d allowed: %d violations, want %d", allowed, got, want)
		}
	}
}

func TestBudgetsThatAreAboutNoPod(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 1).Obj()}, stage.Nodes(1, 8)...)
	s.budget("empty", 0, nil)
	for name, selector := range map[string]*metav1.LabelSelector{
		"without":  nil,
		"unusable": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Wrong"}}},
	} {
		pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		pdb.Spec.Selector = selector
		if err := s.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer().GetStore().Add(pdb); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.candidates(100).Units[0].Violations; got != 0 {
		t.Errorf("%d violations", got)
	}
}

func TestPodsAlreadyDisruptedAreNotCountedAgain(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 1).Obj()}, stage.Nodes(1, 8)...)
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pdb"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}}
	pdb.Status.DisruptedPods = map[string]metav1.Time{"m-0": {}}
	if err := s.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer().GetStore().Add(pdb); err != nil {
		t.Fatal(err)
	}
	if got := s.candidates(100).Units[0].Violations; got != 0 {
		t.Errorf("%d violations", got)
	}
}
