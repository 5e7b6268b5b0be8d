package preemption

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Budgets are the cluster's PodDisruptionBudgets.
type Budgets struct {
	Lister policylisters.PodDisruptionBudgetLister
}

// budgets are the PodDisruptionBudgets of a moment, by namespace.
type budgets map[string][]budget

type budget struct {
	selector labels.Selector
	allowed  int
	// disrupted are pods whose eviction is counted already.
	disrupted map[string]metav1.Time
}

func (b Budgets) read() (budgets, error) {
	list, err := b.Lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	out := budgets{}
	for _, pdb := range list {
		if entry, ok := budgetOf(pdb); ok {
			out[pdb.Namespace] = append(out[pdb.Namespace], entry)
		}
	}
	return out, nil
}

// budgetOf returns false for a budget that is about no pod: without a selector, or with one that cannot be read.
func budgetOf(pdb *policyv1.PodDisruptionBudget) (budget, bool) {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil || selector.Empty() {
		return budget{}, false
	}
	return budget{selector, int(pdb.Status.DisruptionsAllowed), pdb.Status.DisruptedPods}, true
}

// exceeded returns by how many disruptions the end of all these pods together exceeds the budgets. A pod that
// is in several budgets is counted in each.
func (b budgets) exceeded(sets ...[]fwk.PodInfo) int {
	if len(b) == 0 {
		return 0
	}
	taken := map[string][]int{}
	exceeded := 0
	for _, pods := range sets {
		for _, info := range pods {
			exceeded += b.take(info.GetPod(), taken)
		}
	}
	return exceeded
}

func (b budgets) take(pod *corev1.Pod, taken map[string][]int) (exceeded int) {
	list := b[pod.Namespace]
	if len(list) == 0 || len(pod.Labels) == 0 {
		return 0
	}
	if taken[pod.Namespace] == nil {
		taken[pod.Namespace] = make([]int, len(list))
	}
	for i := range list {
		if _, counted := list[i].disrupted[pod.Name]; counted || !list[i].selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		n := &taken[pod.Namespace][i]
		if *n++; *n > list[i].allowed {
			exceeded++
		}
	}
	return exceeded
}
