package simulation

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budget is the PodDisruptionBudget of the Job.
func (j *job) budget() *policyv1.PodDisruptionBudget {
	most := intstr.FromInt32(*j.Disruptions)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: j.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &most,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: j.Name}},
		},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: *j.Disruptions},
	}
}

func (a *api) createBudget(budget *policyv1.PodDisruptionBudget) {
	a.born(budget, "budget")
	a.budgets[nameOf(budget)] = budget
	a.changed(nil, budget)
}

func (a *api) deleteBudget(key types.NamespacedName) {
	budget := a.budgets[key]
	if budget == nil {
		return
	}
	delete(a.budgets, key)
	last := budget.DeepCopy()
	last.ResourceVersion = a.nextVersion()
	a.changed(last, nil)
}

// budgetOf returns the budget that a pod counts in, nil if there is none.
func (a *api) budgetOf(pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	return a.budgets[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[batchv1.JobNameLabel]}]
}

// recountBudget is what the disruption controller does about a change of a pod: those on their way out count.
func (a *api) recountBudget(pod *corev1.Pod) {
	old := a.budgetOf(pod)
	if old == nil {
		return
	}
	left := int32(old.Spec.MaxUnavailable.IntValue())
	for _, p := range a.pods {
		if a.budgetOf(p) == old && p.DeletionTimestamp != nil {
			left--
		}
	}
	if left = max(left, 0); left == old.Status.DisruptionsAllowed {
		return
	}
	now := old.DeepCopy()
	now.Status.DisruptionsAllowed = left
	now.ResourceVersion = a.nextVersion()
	a.budgets[nameOf(now)] = now
	a.changed(old, now)
}

// evict is the pods/eviction subresource.
func (a *api) evict(key types.NamespacedName, meant *metav1.Preconditions) error {
	pod, err := a.only(key, meant)
	if err != nil {
		return err
	}
	if budget := a.budgetOf(pod); budget != nil && budget.Status.DisruptionsAllowed == 0 && pod.DeletionTimestamp == nil {
		refused := apierrors.NewTooManyRequests("the budget does not allow it", 0)
		refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause})
		return refused
	}
	a.deletePod(key, pod.UID)
	return nil
}
