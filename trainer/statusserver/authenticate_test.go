package statusserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const audience = "trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/llm/status"

// Every link of the chain from the token to the TrainJob must hold.
func TestPodAuthenticator(t *testing.T) {
	type world struct {
		status   authenticationv1.TokenReviewStatus
		pod      *corev1.Pod
		jobSet   *jobsetv1alpha2.JobSet
		trainJob *v1alpha1.TrainJob
		fail     error
	}
	for name, tc := range map[string]struct {
		change func(*world)
		ok     bool
		err    bool
	}{
		"all holds":                          {func(*world) {}, true, false},
		"not authenticated":                  {func(w *world) { w.status.Authenticated = false; w.status.Error = "token expired" }, false, false},
		"no audience":                        {func(w *world) { w.status.Audiences = nil }, false, false},
		"another audience":                   {func(w *world) { w.status.Audiences = []string{"https://kubernetes.default.svc"} }, false, false},
		"no service account":                 {func(w *world) { w.status.User.Username = "alice" }, false, false},
		"another namespace":                  {func(w *world) { w.status.User.Username = "system:serviceaccount:elsewhere:default" }, false, false},
		"not bound":                          {func(w *world) { w.status.User.Extra = nil }, false, false},
		"the pod is gone":                    {func(w *world) { w.pod.Name = "another" }, false, false},
		"another pod of the name":            {func(w *world) { w.pod.UID = "v" }, false, false},
		"a pod without a JobSet":             {func(w *world) { w.pod.Labels = nil }, false, false},
		"a pod of an earlier JobSet":         {func(w *world) { w.pod.Labels[jobsetv1alpha2.JobSetUIDKey] = "before" }, false, false},
		"a pod without a Job":                {func(w *world) { w.pod.OwnerReferences = nil }, false, false},
		"a pod of something else":            {func(w *world) { w.pod.OwnerReferences[0].Kind = "ReplicaSet" }, false, false},
		"a JobSet that is not the trainer's": {func(w *world) { w.jobSet.OwnerReferences = nil }, false, false},
		"no JobSet":                          {func(w *world) { w.jobSet.Name = "another" }, false, false},
		"a TrainJob that is made anew":       {func(w *world) { w.trainJob.UID = "new" }, false, false},
		"no TrainJob":                        {func(w *world) { w.trainJob.Name = "another" }, false, false},
		"no answer":                          {func(w *world) { w.fail = errors.New("down") }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{
				status: authenticationv1.TokenReviewStatus{
					Authenticated: true, Audiences: []string{audience},
					User: authenticationv1.UserInfo{Username: "system:serviceaccount:research:default", Extra: map[string]authenticationv1.ExtraValue{
						"authentication.kubernetes.io/pod-name": {"llm-node-0-0-abcde"}, "authentication.kubernetes.io/pod-uid": {"p"},
					}},
				},
				trainJob: &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "t"}},
			}
			w.jobSet = &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "j",
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.trainJob, v1alpha1.GroupVersion.WithKind("TrainJob"))}}}
			w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm-node-0-0-abcde", UID: "p",
				Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: "llm", jobsetv1alpha2.JobSetUIDKey: "j"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "llm-node-0", UID: "b"}},
					metav1.SchemeGroupVersion.WithKind("Job"))}}}
			w.pod.OwnerReferences[0].APIVersion = "batch/v1"
			tc.change(w)

			kube := kubefake.NewClientset(w.pod)
			kube.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
				spec := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).Spec
				if spec.Token != "secret" || len(spec.Audiences) != 1 || spec.Audiences[0] != audience && spec.Audiences[0] != strings.Replace(audience, "llm", "other", 1) {
					t.Errorf("reviewed %+v", spec)
				}
				return true, &authenticationv1.TokenReview{Status: w.status}, w.fail
			})
			scheme := apiruntime.NewScheme()
			for _, add := range []func(*apiruntime.Scheme) error{v1alpha1.AddToScheme, jobsetv1alpha2.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			a := newAuthenticator(kube, fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.jobSet, w.trainJob).Build())
			ctx := forTrainJob(context.Background(), types.NamespacedName{Namespace: "research", Name: "llm"})
			for range 2 {
				if _, ok, err := a.AuthenticateToken(ctx, "secret"); ok != tc.ok || (err != nil) != tc.err {
					t.Errorf("authenticated %t, error %v", ok, err)
				}
			}
			reviews := 0
			for _, action := range kube.Actions() {
				if action.Matches("create", "tokenreviews") {
					reviews++
				}
			}
			if want := map[bool]int{true: 1, false: 2}[tc.ok]; reviews != want {
				t.Errorf("%d reviews, want %d: what was recognised is remembered, and nothing else", reviews, want)
			}
			other := forTrainJob(context.Background(), types.NamespacedName{Namespace: "research", Name: "other"})
			w.status.Audiences = []string{"trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/other/status"}
			if _, ok, _ := a.AuthenticateToken(other, "secret"); ok {
				t.Error("what was recognised for one TrainJob is recognised for another")
			}
		})
	}
}
