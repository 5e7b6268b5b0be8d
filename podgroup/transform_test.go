package podgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// fatten adds to a pod what no gang cares about.
func fatten(pod *corev1.Pod) {
	pod.Labels["app"] = "x"
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations["note"] = "x"
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
	pod.OwnerReferences = append([]metav1.OwnerReference{{Kind: "Note", Name: "n", UID: "n"}}, pod.OwnerReferences...)
	pod.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	pod.ResourceVersion = "5"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
	pod.Status.PodIP = "10.0.0.1"
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized})
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].Message = "a long explanation"
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			statuses[i].Image, statuses[i].RestartCount = "image", 3
			if waits := statuses[i].State.Waiting; waits != nil {
				waits.Message = "a long explanation"
			}
		}
	}
}

func TestTransformKeepsWhatGangsReadAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := randomPod(t)
		if rapid.Bool().Draw(t, "of a JobSet") {
			ofJobSet("set", "node", 3, 2, 1)(pod)
			ofJobs(3)(pod)
		}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(topologyAnnotations), rapid.ID).Draw(t, "topology") {
			asking(key, "rack")(pod)
		}
		if rapid.Bool().Draw(t, "in a native group") {
			name := "native"
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		}
		if rapid.Bool().Draw(t, "generated") {
			generated(pod)
		}
		if status := randomStatus(t); holdsNode(pod) {
			status.Phase = pod.Status.Phase
			pod.Status = status
		}
		thin := pod.DeepCopy()
		fatten(pod)
		fat := pod.DeepCopy()

		obj, err := Transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		got := obj.(*corev1.Pod)
		if !equality.Semantic.DeepEqual(pod, fat) {
			t.Fatal("the transformed pod was changed in place")
		}
		if got.ResourceVersion != "5" || !got.CreationTimestamp.Equal(&pod.CreationTimestamp) {
			t.Fatal("resource version or creation time is lost")
		}
		if MemberOf(got) != MemberOf(fat) {
			t.Fatalf("the member differs:\n%+v\n%+v", MemberOf(got), MemberOf(fat))
		}
		gotKey, gotOK := Key(got)
		if wantKey, wantOK := Key(fat); gotKey != wantKey || gotOK != wantOK {
			t.Fatalf("the gang differs: %v, %v", gotKey, wantKey)
		}
		thin.ResourceVersion, thin.CreationTimestamp = got.ResourceVersion, got.CreationTimestamp
		if diff := cmp.Diff(thin, got); diff != "" {
			t.Fatalf("more or less is kept than needed (-want +got):\n%s", diff)
		}
		again, err := Transform(got)
		if err != nil || !equality.Semantic.DeepEqual(again, got) {
			t.Fatalf("transforming twice differs from once (error %v)", err)
		}
	})
}

func TestTransformDropsLabelsThatOnlyLookAlike(t *testing.T) {
	pod := newPod("a", withLabel(jobset.JobSetUIDKey, "uid"), withLabel(jobset.JobKey, "x"))
	obj, _ := Transform(pod)
	if labels := obj.(*corev1.Pod).Labels; len(labels) != 1 {
		t.Errorf("labels %v are kept, want that of the gang alone", labels)
	}
}

func TestTransformPassesOtherObjects(t *testing.T) {
	for _, obj := range []any{nil, &corev1.Node{}, cache.DeletedFinalStateUnknown{Key: "ns/a"}} {
		if got, err := Transform(obj); err != nil || !cmp.Equal(got, obj) {
			t.Errorf("%T became %v, error %v", obj, got, err)
		}
	}
}
