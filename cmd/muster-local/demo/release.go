package demo

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// gathered is true once every member of every job exists.
func gathered(l *ledger) bool {
	count := map[string]int{}
	for _, pod := range l.pods {
		count[pod.job]++
	}
	for job, members := range l.members {
		if count[job] < members {
			return false
		}
	}
	return true
}

// inTurn returns the names of all pods: the first of each job, then the second of each, and so on. Jobs
// come in the order given, the pods of a job in the order of their ranks, which their names contain.
func inTurn(l *ledger, jobs []string) []string {
	byJob := map[string][]string{}
	for _, pod := range l.pods {
		byJob[pod.job] = append(byJob[pod.job], pod.name)
	}
	longest := 0
	for _, names := range byJob {
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		longest = max(longest, len(names))
	}
	var order []string
	for i := range longest {
		for _, job := range jobs {
			if i < len(byJob[job]) {
				order = append(order, byJob[job][i])
			}
		}
	}
	return order
}

// release takes the scheduling gates off pods, one after the other.
func release(ctx context.Context, client kubernetes.Interface, namespace string, names []string) error {
	for _, name := range names {
		if _, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"spec":{"schedulingGates":[]}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
