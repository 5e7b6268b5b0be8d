package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
	"github.com/muster-sched/muster/trainer/snapshot"
)

var (
	now    = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	before = metav1.NewTime(now.Add(-time.Hour))
)

func runtimeSpec() v1alpha1.TrainingRuntimeSpec {
	node := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: 1}
	node.Template = batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}}}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: "train"}, {Name: "sidecar", Image: "side"}}
	return v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{node}}},
	}
}

func clusterRuntime() *v1alpha1.ClusterTrainingRuntime {
	return &v1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: runtimeSpec()}
}

func trainJob(changes ...func(*v1alpha1.TrainJob)) *v1alpha1.TrainJob {
	job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
	job.Spec.RuntimeRef.Name = "torch"
	for _, change := range changes {
		change(job)
	}
	return job
}

func suspend(job *v1alpha1.TrainJob) { job.Spec.Suspend = ptr.To(true) }

func patched(manager, job string, pod v1alpha1.PodSpecPatch) func(*v1alpha1.TrainJob) {
	return func(j *v1alpha1.TrainJob) {
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, v1alpha1.RuntimePatch{
			Manager: manager,
			TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{Spec: &v1alpha1.JobSetSpecPatch{
				ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{Name: job, Template: &v1alpha1.JobTemplatePatch{Spec: &v1alpha1.JobSpecPatch{
					Template: &v1alpha1.PodTemplatePatch{Spec: &pod},
				}}}},
			}}},
		})
	}
}

func fakeClient(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, jobsetv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&jobsetv1alpha2.JobSet{})
}

func validatorOf(api client.Client) *trainJobValidator {
	return &trainJobValidator{
		framework: framework.New(plugins.All(api, api, "")...),
		runtimes:  &snapshot.Store{Runtimes: api, Snapshots: api, Live: api, Writer: api},
		jobSets:   api,
	}
}

// want checks that an answer refuses with all parts, or, without parts, accepts.
func want(t *testing.T, err error, parts ...string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want %q", err, part)
		}
	}
}

func TestValidateCreate(t *testing.T) {
	namespaced := &v1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "own"}, Spec: runtimeSpec()}
	old := clusterRuntime()
	old.Name, old.Labels = "old", map[string]string{v1alpha1.SupportLabel: v1alpha1.SupportDeprecated}
	broken := clusterRuntime()
	broken.Name = "broken"
	broken.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "main"
	for name, tc := range map[string]struct {
		job      *v1alpha1.TrainJob
		want     []string
		warnings admission.Warnings
	}{
		"fine": {job: trainJob()},
		"fine, of its own namespace": {job: trainJob(func(j *v1alpha1.TrainJob) {
			j.Spec.RuntimeRef = v1alpha1.RuntimeRef{Name: "own", Kind: ptr.To("TrainingRuntime")}
		})},
		"a runtime of another namespace": {
			job: trainJob(func(j *v1alpha1.TrainJob) {
				j.Namespace, j.Spec.RuntimeRef = "other", v1alpha1.RuntimeRef{Name: "own", Kind: ptr.To("TrainingRuntime")}
			}),
			want: []string{"spec.runtimeRef", "there is no TrainingRuntime of this name"},
		},
		"no such runtime": {
			job:  trainJob(func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "missing" }),
			want: []string{"spec.runtimeRef", `"missing"`, "create it before the TrainJob"},
		},
		"no such kind": {
			job:  trainJob(func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Kind = ptr.To("Recipe") }),
			want: []string{"spec.runtimeRef", "unsupported runtime: Recipe.trainer.kubeflow.org"},
		},
		"a deprecated runtime": {
			job:      trainJob(func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "old" }),
			warnings: admission.Warnings{`ClusterTrainingRuntime "old" is deprecated and will be removed: it has the label trainer.kubeflow.org/support=deprecated`},
		},
		"one process beside many accelerators": {
			job: trainJob(func(j *v1alpha1.TrainJob) {
				j.Spec.Trainer = &v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](1), ResourcesPerNode: &corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
				}}
			}),
			warnings: admission.Warnings{"spec.trainer.numProcPerNode: there will be one process on each node, which has 8 nvidia.com/gpu; " +
				"leave the field out to have one process for each"},
		},
		"a runtime that is wrong": {
			job:  trainJob(func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "broken" }),
			want: []string{"ClusterTrainingRuntime broken: spec.template.spec.replicatedJobs[0]", "container named node"},
		},
		"several errors": {
			job: trainJob(patched("me", "nodes", v1alpha1.PodSpecPatch{}), func(j *v1alpha1.TrainJob) {
				j.Spec.Trainer = &v1alpha1.Trainer{NumNodes: ptr.To[int32](-1), Env: []corev1.EnvVar{{Name: "PET_NNODES"}}}
			}),
			want: []string{
				"spec.trainer.numNodes", "spec.trainer.env[0].name", "spec.runtimePatches[0].manager",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name",
			},
		},
		"a patch of a container that is not there": {
			job:  trainJob(patched("a/b", "node", v1alpha1.PodSpecPatch{Containers: []v1alpha1.ContainerPatch{{Name: "sidecars"}}})),
			want: []string{"replicatedJobs[0].template.spec.template.spec.containers[0].name"},
		},
		"a patch of the training container's environment": {
			job: trainJob(patched("a/b", "node", v1alpha1.PodSpecPatch{Containers: []v1alpha1.ContainerPatch{
				{Name: "node", Env: []corev1.EnvVar{{Name: "A"}}}, {Name: "sidecar", Env: []corev1.EnvVar{{Name: "A"}}},
			}})),
			want: []string{"containers[0].env"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := validatorOf(fakeClient(t, clusterRuntime(), namespaced, old, broken).Build())
			warnings, err := v.ValidateCreate(context.Background(), tc.job)
			want(t, err, tc.want...)
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got)\n%s", diff)
			}
		})
	}
}

func TestValidateUpdate(t *testing.T) {
	selector := func(value string) v1alpha1.PodSpecPatch {
		return v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"pool": value}}
	}
	one, two := patched("a/b", "node", selector("one")), patched("a/b", "node", selector("two"))
	jobSet := func(active int32, owner *v1alpha1.TrainJob) *jobsetv1alpha2.JobSet {
		set := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("TrainJob"))}
		set.Status.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "setup"}, {Name: "node", Active: active}}
		return set
	}
	for name, tc := range map[string]struct {
		before, after *v1alpha1.TrainJob
		objects       []client.Object
		want          []string
	}{
		"a label":                 {before: trainJob(one), after: trainJob(one, func(j *v1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} })},
		"suspend":                 {before: trainJob(one), after: trainJob(one, suspend)},
		"resume":                  {before: trainJob(one, suspend), after: trainJob(one)},
		"a patch while suspended": {before: trainJob(one, suspend), after: trainJob(two, suspend)},
		"a patch with suspending": {before: trainJob(one), after: trainJob(two, suspend)},
		"a patch with resuming":   {before: trainJob(one, suspend), after: trainJob(two)},
		"a patch while running": {
			before: trainJob(one), after: trainJob(two),
			want: []string{"spec.runtimePatches: Forbidden", "while the TrainJob is suspended"},
		},
		"the time of a patch while running": {
			before: trainJob(one), after: trainJob(one, func(j *v1alpha1.TrainJob) { j.Spec.RuntimePatches[0].Time = &now }),
		},
		"a patch before the pods are gone": {
			before: trainJob(one, suspend), after: trainJob(two, suspend), objects: []client.Object{jobSet(1, trainJob())},
			want: []string{"spec.runtimePatches: Forbidden", "replicated job node"},
		},
		"a patch after the pods are gone": {
			before: trainJob(one, suspend), after: trainJob(two, suspend), objects: []client.Object{jobSet(0, trainJob())},
		},
		"a patch beside another's JobSet": {
			before: trainJob(one, suspend), after: trainJob(two, suspend),
			objects: []client.Object{jobSet(1, trainJob(func(j *v1alpha1.TrainJob) { j.UID = "before" }))},
		},
		"a wrong patch": {
			before: trainJob(suspend), after: trainJob(suspend, patched("a/b", "nodes", selector("one"))),
			want: []string{"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name"},
		},
		"anything that is being deleted": {
			before: trainJob(suspend), after: trainJob(patched("a/b", "nodes", selector("one")), func(j *v1alpha1.TrainJob) { j.DeletionTimestamp = &now }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := validatorOf(fakeClient(t, append(tc.objects, clusterRuntime())...).Build())
			_, err := v.ValidateUpdate(context.Background(), tc.before, tc.after)
			want(t, err, tc.want...)
		})
	}
}

// An update is checked against the runtime that the TrainJob uses: what it was when the TrainJob began.
func TestUpdatesAreCheckedAgainstTheSnapshot(t *testing.T) {
	patch := patched("a/b", "node", v1alpha1.PodSpecPatch{Containers: []v1alpha1.ContainerPatch{{Name: "sidecar"}}})
	update := func(v *trainJobValidator) error {
		_, err := v.ValidateUpdate(context.Background(), trainJob(suspend), trainJob(suspend, patch))
		return err
	}
	live := clusterRuntime()
	api := fakeClient(t, live).Build()
	v := validatorOf(api)
	source, err := v.runtimes.Current(context.Background(), trainJob())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.runtimes.Take(context.Background(), trainJob(), source); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(context.Background(), client.ObjectKeyFromObject(live), live); err != nil {
		t.Fatal(err)
	}
	live.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[1].Name = "renamed"
	if err := api.Update(context.Background(), live); err != nil {
		t.Fatal(err)
	}
	want(t, update(v))
	if err := api.Delete(context.Background(), live); err != nil {
		t.Fatal(err)
	}
	want(t, update(v))

	damaged := &corev1.ConfigMap{}
	if err := api.Get(context.Background(), client.ObjectKey{Namespace: "research", Name: "llm-runtime-snapshot"}, damaged); err != nil {
		t.Fatal(err)
	}
	damaged.Data = nil
	if err := api.Update(context.Background(), damaged); err != nil {
		t.Fatal(err)
	}
	want(t, update(v), "ConfigMap llm-runtime-snapshot: data.runtime: is missing")
}

// A runtime that was created a moment ago is found, though the cache does not have it yet.
func TestRuntimeIsFoundBehindTheCache(t *testing.T) {
	v := validatorOf(fakeClient(t, clusterRuntime()).Build())
	v.runtimes.Runtimes = fakeClient(t).Build()
	_, err := v.ValidateCreate(context.Background(), trainJob())
	want(t, err)
}

// A failure of ours is no refusal: the client may try again.
func TestFailureIsNoRefusal(t *testing.T) {
	broken := fakeClient(t).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("API server away")
		},
	}).Build()
	handler := admission.WithValidator(broken.Scheme(), admission.Validator[*v1alpha1.TrainJob](validatorOf(broken)))
	content, err := json.Marshal(trainJob())
	if err != nil {
		t.Fatal(err)
	}
	response := handler.Handle(context.Background(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: apiruntime.RawExtension{Raw: content},
	}})
	if response.Allowed || response.Result.Code != 500 || !strings.Contains(response.Result.Message, "API server away") {
		t.Errorf("response = %+v", response.Result)
	}
}
