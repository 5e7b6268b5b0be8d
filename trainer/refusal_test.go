package trainer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestReconcileRefusals(t *testing.T) {
	cases := map[string]struct {
		job     func(*v1alpha1.TrainJob)
		runtime func(*v1alpha1.ClusterTrainingRuntime)
		reason  string
		message string
	}{
		"another kind of runtime": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Kind = ptr.To("Recipe") },
			reason: "TrainingRuntimeNotSupported", message: "unsupported runtime: Recipe.trainer.kubeflow.org",
		},
		"another group of runtime": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.APIGroup = ptr.To("example.com") },
			reason: "TrainingRuntimeNotSupported", message: "unsupported runtime: ClusterTrainingRuntime.example.com",
		},
		"Volcano, beside coscheduling too": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.PodGroupPolicy.Volcano = &v1alpha1.VolcanoPodGroupPolicySource{}
			},
			reason: "Invalid", message: "spec.podGroupPolicy.volcano: Forbidden: only one of",
		},
		"no nodes": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.Trainer.NumNodes = ptr.To[int32](0) },
			reason: "Invalid", message: "spec.trainer.numNodes: Invalid value: 0: must be at least 1",
		},
		"a reserved variable": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "A"}, {Name: "PET_NNODES"}}
			},
			reason: "Invalid", message: "spec.trainer.env[1].name: ",
		},
		"a negative timeout": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.PodGroupPolicy.Coscheduling.ScheduleTimeoutSeconds = ptr.To[int32](-1)
			},
			reason: "Invalid", message: "ClusterTrainingRuntime torch-distributed-gang: spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds: ",
		},
		"an initializer that the runtime lacks": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.Initializer = &v1alpha1.Initializer{Dataset: &v1alpha1.DatasetInitializer{}}
			},
			reason: "Invalid", message: "spec.initializer.dataset: ",
		},
		"a patch for a job that the runtime lacks": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.RuntimePatches = []v1alpha1.RuntimePatch{{
					Manager: "example.com/m",
					TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{
						Spec: &v1alpha1.JobSetSpecPatch{ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{Name: "nodes"}}},
					}},
				}}
			},
			reason: "Invalid", message: "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: ",
		},
		"a runtime without jobs": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) { r.Spec.Template.Spec.ReplicatedJobs = nil },
			reason:  "Invalid", message: "spec.template.spec.replicatedJobs: Required value",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job, runtime := trainJob(), gangRuntime(t)
			if tc.job != nil {
				tc.job(job)
			}
			if tc.runtime != nil {
				tc.runtime(runtime)
			}
			c := newCluster(t, job, runtime)
			c.settle()
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, tc.reason, tc.message)
			if c.jobSet() != nil || c.podGroups() != nil {
				t.Error("a refused TrainJob has children")
			}
			if event := c.nextEvent(); !strings.Contains(event, "Warning "+tc.reason) {
				t.Errorf("event = %q", event)
			}
			if event := c.nextEvent(); event != "" {
				t.Errorf("a second event: %q", event)
			}
		})
	}
}

func TestReconcileNeverTakesOthersObjects(t *testing.T) {
	other := metav1.ObjectMeta{Namespace: "research", Name: "llm", Labels: map[string]string{"theirs": "yes"}}
	for name, object := range map[string]client.Object{
		"JobSet":   &jobsetv1alpha2.JobSet{ObjectMeta: other},
		"PodGroup": &podgroup.PodGroup{ObjectMeta: other},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t), object)
			_, err := c.reconcile()
			if err == nil || !strings.Contains(err.Error(), name+" research/llm exists and does not belong to this TrainJob") {
				t.Fatalf("error = %v", err)
			}
			if !c.get(object) || len(object.GetOwnerReferences()) != 0 {
				t.Errorf("the object was taken: %v", object.GetOwnerReferences())
			}
			if event := c.nextEvent(); !strings.Contains(event, "does not belong") {
				t.Errorf("event = %q", event)
			}
		})
	}
}

// A cache that lags behind does not show an object that is there. What the API server says counts.
func TestReconcileNeverTakesOthersObjectsUnseen(t *testing.T) {
	for name, theirs := range map[string]client.Object{
		"JobSet":   &jobsetv1alpha2.JobSet{Spec: jobsetv1alpha2.JobSetSpec{Suspend: ptr.To(true), ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{Name: "theirs", Replicas: 7}}}},
		"PodGroup": &podgroup.PodGroup{Spec: schedulingv1alpha1.PodGroupSpec{MinMember: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			theirs.SetNamespace("research")
			theirs.SetName("llm")
			c := newCluster(t, trainJob(), gangRuntime(t))
			if err := c.Create(context.Background(), theirs, client.FieldOwner("somebody")); err != nil {
				t.Fatal(err)
			}
			want := theirs.GetResourceVersion()
			c.unseen = theirs
			if _, err := c.reconcile(); !apierrors.IsConflict(err) {
				t.Errorf("error = %v, want a conflict", err)
			}
			c.unseen = nil
			if !c.get(theirs) || theirs.GetResourceVersion() != want || len(theirs.GetOwnerReferences()) != 0 {
				t.Errorf("the object was taken: %v", theirs.GetOwnerReferences())
			}
		})
	}
}

// What others refuse for what it says ends the TrainJob, with their words; what may change by itself, such as
// rights, quota and servers that are away, is tried again.
func TestReconcileRefusedByOthers(t *testing.T) {
	jobSets := schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}
	for name, tc := range map[string]struct {
		err   error
		final string
	}{
		"by the schema":            {apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "llm", nil), `JobSet "llm" is invalid`},
		"by JobSet's webhook":      {denied("spec.replicatedJobs[0].name: Invalid value"), "spec.replicatedJobs[0].name: Invalid value"},
		"for lack of rights":       {apierrors.NewForbidden(jobSets, "llm", errors.New("may not create")), ""},
		"for lack of quota":        {apierrors.NewForbidden(jobSets, "llm", errors.New("exceeded quota: count/jobsets")), ""},
		"by a webhook that's away": {apierrors.NewInternalError(errors.New(`failed calling webhook "vjobset.kb.io"`)), ""},
		"by a server that's away":  {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t))
			c.fail = func(write string) error {
				if write == "apply JobSet" {
					return tc.err
				}
				return nil
			}
			if tc.final == "" {
				if _, err := c.reconcile(); err == nil || c.job().Finished() {
					t.Fatalf("error %v, conditions %v: want it to be tried again", err, c.job().Status.Conditions)
				}
				c.wantEvents("Warning TrainJobResourcesCreationFailed")
				return
			}
			c.settle()
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", tc.final)
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", "spec.runtimeRef: what ClusterTrainingRuntime torch-distributed-gang makes")
			if got := c.podGroups(); got != nil {
				t.Errorf("PodGroups = %v", got)
			}
		})
	}
}

// A refusal to change a JobSet that the cache does not show yet says nothing about the TrainJob.
func TestReconcileRefusedBehindTheCache(t *testing.T) {
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	c.unseen = c.jobSet()
	c.fail = failing("apply JobSet", apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "llm", nil))
	if _, err := c.reconcile(); err == nil || !strings.Contains(err.Error(), "JobSet research/llm is newer") || c.job().Finished() {
		t.Fatalf("error %v, conditions %v: want it to be tried again", err, c.job().Status.Conditions)
	}
	c.unseen, c.fail = nil, nil
	c.settle()
	if got := c.job().Status.Conditions; len(got) != 1 || got[0].Type != v1alpha1.TrainJobSuspended {
		t.Errorf("conditions = %+v", got)
	}
}

func TestNote(t *testing.T) {
	if got := note("short"); got != "short" {
		t.Errorf("note = %q", got)
	}
	long := note(strings.Repeat("é", 2000))
	if len(long) > 1024 || !strings.HasSuffix(long, "...") || strings.ContainsRune(long, '\uFFFD') {
		t.Errorf("note of a long text: %d bytes", len(long))
	}
}

// A message that the API server would refuse could never be written, and the TrainJob be tried for ever.
func TestFailureHasRoomInTheStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		arg     string
		refusal error
	}{
		"of the trainer's own": {arg: "output_dir=" + strings.Repeat("é", 50_000)},
		"in others' words":     {arg: "epochs=1", refusal: denied("spec: " + strings.Repeat("x", 100_000))},
	} {
		t.Run(name, func(t *testing.T) {
			job := trainJob(func(j *v1alpha1.TrainJob) {
				j.Spec.RuntimeRef.Name = "torchtune-llama3.2-1b"
				j.Spec.Trainer = &v1alpha1.Trainer{Command: []string{"tune", "run"}}
				for range 10 {
					j.Spec.Trainer.Args = append(j.Spec.Trainer.Args, tc.arg)
				}
			})
			c := newCluster(t, job, readRuntime(t, "torchtune-llama3.2-1b"))
			if tc.refusal != nil {
				c.fail = failing("apply JobSet", tc.refusal)
			}
			c.settle()
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, v1alpha1.ReasonInvalid, "...")
			if message := c.condition(v1alpha1.TrainJobFailed).Message; len(message) > 32768 || len(message) < 1000 || !utf8.ValidString(message) {
				t.Errorf("the message has %d bytes", len(message))
			}
		})
	}
}
