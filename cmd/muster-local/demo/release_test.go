package demo

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestInTurn(t *testing.T) {
	l := newLedger(at(0), map[string]int{"atlas": 11, "birch": 2})
	for i := range 11 {
		if gathered(l) {
			t.Errorf("gathered with %d of 11", i)
		}
		l.set(at(0), fmt.Sprint("a", i), podState{job: "atlas", name: fmt.Sprintf("atlas-%d", i)})
	}
	for i := range 2 {
		l.set(at(0), fmt.Sprint("b", i), podState{job: "birch", name: fmt.Sprintf("birch-%d", i)})
	}
	if !gathered(l) {
		t.Error("all pods exist")
	}
	want := []string{
		"atlas-0", "birch-0", "atlas-1", "birch-1", "atlas-2", "atlas-3", "atlas-4", "atlas-5",
		"atlas-6", "atlas-7", "atlas-8", "atlas-9", "atlas-10",
	}
	if diff := cmp.Diff(want, inTurn(l, []string{"atlas", "birch"})); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestRelease(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "demo"},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: releaseGate}}},
	}
	client := fake.NewClientset(pod)
	if err := release(t.Context(), client, "demo", []string{"a"}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Pods("demo").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.SchedulingGates) > 0 {
		t.Errorf("still gated: %v", got.Spec.SchedulingGates)
	}
	if err := release(t.Context(), client, "demo", []string{"nobody"}); err == nil {
		t.Error("a pod that does not exist cannot be released")
	}
}
