package runtime

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// job is a replicated job with one container of each name.
func job(name, ancestor string, containers ...string) jobsetv1alpha2.ReplicatedJob {
	j := jobsetv1alpha2.ReplicatedJob{Name: name}
	if ancestor != "" {
		j.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
	}
	for _, container := range containers {
		j.Template.Spec.Template.Spec.Containers = append(j.Template.Spec.Template.Spec.Containers, corev1.Container{Name: container})
	}
	return j
}

func runtimeOf(jobs ...jobsetv1alpha2.ReplicatedJob) *v1alpha1.TrainingRuntimeSpec {
	return &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: jobs}}}
}

func newInfo(t *testing.T, trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) *Info {
	t.Helper()
	info, err := New(trainJob, spec)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// podPatch is a patch of the pods of one replicated job.
func podPatch(manager, name string, pod *v1alpha1.PodSpecPatch) v1alpha1.RuntimePatch {
	return v1alpha1.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{
		Template: &v1alpha1.JobSetTemplatePatch{Spec: &v1alpha1.JobSetSpecPatch{ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{
			Name:     name,
			Template: &v1alpha1.JobTemplatePatch{Spec: &v1alpha1.JobSpecPatch{Template: &v1alpha1.PodTemplatePatch{Spec: pod}}},
		}}}},
	}}
}

func TestPodSetCounts(t *testing.T) {
	cases := map[string]struct {
		policy   *v1alpha1.MLPolicy
		change   func(*jobsetv1alpha2.ReplicatedJob)
		ancestor string
		replicas int32
		count    int32
	}{
		"nothing set":                     {replicas: 1, count: 1},
		"parallelism":                     {change: parallelism(3), replicas: 1, count: 3},
		"parallelism of zero":             {change: parallelism(0), replicas: 1, count: 1},
		"replicas multiply":               {change: replicas(4), replicas: 4, count: 1},
		"the trainer is one Job":          {change: replicas(4), ancestor: "trainer", replicas: 1, count: 1},
		"an initializer is one Job":       {change: replicas(4), ancestor: "model-initializer", replicas: 1, count: 1},
		"numNodes is for the trainer":     {policy: numNodes(5), change: parallelism(3), replicas: 1, count: 3},
		"the trainer's numNodes":          {policy: numNodes(5), change: parallelism(3), ancestor: "trainer", replicas: 1, count: 5},
		"a policy without numNodes":       {policy: &v1alpha1.MLPolicy{}, change: parallelism(3), ancestor: "trainer", replicas: 1, count: 1},
		"no policy, trainer":              {change: parallelism(3), ancestor: "trainer", replicas: 1, count: 3},
		"an unknown ancestor is anything": {change: replicas(2), ancestor: "launcher", replicas: 2, count: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := job("node", tc.ancestor, "node")
			if tc.change != nil {
				tc.change(&j)
			}
			spec := runtimeOf(j)
			spec.MLPolicy = tc.policy
			got := newInfo(t, &v1alpha1.TrainJob{}, spec).PodSets[0]
			if got.Replicas != tc.replicas || got.Count != tc.count || got.Ancestor != tc.ancestor {
				t.Errorf("got %d x %d of %q, want %d x %d", got.Replicas, got.Count, got.Ancestor, tc.replicas, tc.count)
			}
		})
	}
}

func parallelism(n int32) func(*jobsetv1alpha2.ReplicatedJob) {
	return func(j *jobsetv1alpha2.ReplicatedJob) { j.Template.Spec.Parallelism = &n }
}

func replicas(n int32) func(*jobsetv1alpha2.ReplicatedJob) {
	return func(j *jobsetv1alpha2.ReplicatedJob) { j.Replicas = n }
}

func numNodes(n int32) *v1alpha1.MLPolicy {
	return &v1alpha1.MLPolicy{NumNodes: &n}
}

func TestNewLeavesItsInputsAlone(t *testing.T) {
	spec := runtimeOf(job("node", "trainer", "node"))
	spec.MLPolicy = numNodes(2)
	spec.Template.Labels = map[string]string{"a": "runtime"}
	trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{
		Trainer: &v1alpha1.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}},
		RuntimePatches: []v1alpha1.RuntimePatch{
			podPatch("a/b", "node", &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"k": "v"}}),
			{Manager: "c/d", TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{
				Metadata: &metav1.ObjectMeta{Labels: map[string]string{"a": "patch"}, Annotations: map[string]string{"b": "patch"}},
			}}},
			{Manager: "e/f"},
		},
	}}
	specBefore, jobBefore := spec.DeepCopy(), trainJob.DeepCopy()

	info := newInfo(t, trainJob, spec)
	if diff := cmp.Diff(map[string]string{"a": "patch"}, info.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"b": "patch"}, info.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	node := info.Trainer().Container("node")
	if node.Resources.Limits.Cpu().Value() != 1 || info.Trainer().PodSpec().NodeSelector["k"] != "v" {
		t.Errorf("not merged: %+v", info.JobSet)
	}
	if len(info.Template.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector) != 0 {
		t.Error("the template is merged")
	}
	// A plugin's writes must not reach the cache that the inputs come from.
	*info.MLPolicy.NumNodes = 9
	node.Image = "changed"
	node.Resources.Limits["cpu"] = resource.MustParse("9")
	info.Labels["a"] = "changed"
	if diff := cmp.Diff(specBefore, spec); diff != "" {
		t.Errorf("the runtime changed (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff(jobBefore, trainJob); diff != "" {
		t.Errorf("the TrainJob changed (-before +after)\n%s", diff)
	}
}

func TestLookups(t *testing.T) {
	spec := runtimeOf(job("server", "", "server"), job("workers", "trainer", "node", "sidecar"))
	spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	info := newInfo(t, &v1alpha1.TrainJob{}, spec)
	if got := info.Trainer(); got != &info.PodSets[1] || got.Job != &info.JobSet.ReplicatedJobs[1] {
		t.Errorf("Trainer() = %v", got)
	}
	if info.ByAncestor("model-initializer") != nil || info.ByName("node") != nil {
		t.Error("found what is not there")
	}
	if got := info.ByName("server"); got != &info.PodSets[0] {
		t.Errorf("ByName(server) = %v", got)
	}
	workers := info.ByName("workers")
	if workers.Container("setup") != nil {
		t.Error("an init container is no container")
	}
	if got := workers.ContainerOrInit("setup"); got != &workers.PodSpec().InitContainers[0] {
		t.Errorf("ContainerOrInit(setup) = %v", got)
	}
	if got := workers.ContainerOrInit("sidecar"); got != &workers.PodSpec().Containers[1] {
		t.Errorf("ContainerOrInit(sidecar) = %v", got)
	}
}

func TestEndpoint(t *testing.T) {
	trainJob := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm"}}
	spec := runtimeOf(job("node", "trainer", "node"))
	info := newInfo(t, trainJob, spec)
	if got, want := info.Endpoint(trainJob, info.Trainer(), 0, 12), "llm-node-0-12.llm"; got != want {
		t.Errorf("endpoint = %s, want %s", got, want)
	}
	info.JobSet.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
	if got, want := info.Endpoint(trainJob, info.Trainer(), 2, 0), "llm-node-2-0.mesh"; got != want {
		t.Errorf("endpoint = %s, want %s", got, want)
	}
}

func TestMergeResources(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	base := corev1.ResourceRequirements{
		Requests: list("cpu", "8", "memory", "32Gi"),
		Claims:   []corev1.ResourceClaim{{Name: "nic", Request: "one"}, {Name: "gpu"}},
	}
	mergeResources(&base, &corev1.ResourceRequirements{
		Requests: list("memory", "64Gi"),
		Limits:   list("nvidia.com/gpu", "8"),
		Claims:   []corev1.ResourceClaim{{Name: "nic", Request: "two"}, {Name: "extra"}},
	})
	want := corev1.ResourceRequirements{
		Requests: list("cpu", "8", "memory", "64Gi"),
		Limits:   list("nvidia.com/gpu", "8"),
		Claims:   []corev1.ResourceClaim{{Name: "nic", Request: "two"}, {Name: "gpu"}, {Name: "extra"}},
	}
	if diff := cmp.Diff(want, base); diff != "" {
		t.Errorf("merged (-want +got)\n%s", diff)
	}
}

func TestResourcesGoToTheTrainerOnly(t *testing.T) {
	resources := &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{ResourcesPerNode: resources}}}
	info := newInfo(t, trainJob, runtimeOf(job("other", "", "node"), job("node", "trainer", "node", "sidecar")))
	for _, c := range []*corev1.Container{info.ByName("other").Container("node"), info.Trainer().Container("sidecar")} {
		if len(c.Resources.Limits) != 0 {
			t.Errorf("container %s got the trainer's resources", c.Name)
		}
	}
	if len(info.Trainer().Container("node").Resources.Limits) != 1 {
		t.Error("the trainer got no resources")
	}
}

func TestPatchesApplyInOrder(t *testing.T) {
	spec := runtimeOf(job("server", "", "server"), job("node", "trainer", "node", "sidecar"))
	spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "template"}}
	spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "template"}}
	trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{RuntimePatches: []v1alpha1.RuntimePatch{
		podPatch("a/first", "node", &v1alpha1.PodSpecPatch{
			NodeSelector: map[string]string{"pool": "first", "zone": "first"},
			Tolerations:  []corev1.Toleration{{Key: "first"}},
			Containers:   []v1alpha1.ContainerPatch{{Name: "sidecar", Env: []corev1.EnvVar{{Name: "A", Value: "patch"}, {Name: "B", Value: "patch"}}}},
		}),
		podPatch("a/second", "node", &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"pool": "second"}}),
	}}}
	info := newInfo(t, trainJob, spec)
	if got := []string{info.JobSet.ReplicatedJobs[0].Name, info.JobSet.ReplicatedJobs[1].Name}; !slices.Equal(got, []string{"server", "node"}) {
		t.Errorf("order of replicated jobs = %v", got)
	}
	pod := info.Trainer().PodSpec()
	if diff := cmp.Diff(map[string]string{"pool": "second", "zone": "first"}, pod.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Key: "first"}}, pod.Tolerations); diff != "" {
		t.Errorf("tolerations are replaced (-want +got)\n%s", diff)
	}
	env := map[string]string{}
	for _, e := range info.Trainer().Container("sidecar").Env {
		env[e.Name] = e.Value
	}
	if diff := cmp.Diff(map[string]string{"A": "patch", "B": "patch"}, env); diff != "" {
		t.Errorf("env (-want +got)\n%s", diff)
	}
}

// A patch touches its own replicated job, and no patch reorders the jobs, however they are listed.
func TestPatchesKeepJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 6, rapid.ID[string]).Draw(t, "jobs")
		var jobs []jobsetv1alpha2.ReplicatedJob
		for _, name := range names {
			jobs = append(jobs, job(name, "", "main"))
		}
		patched := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "patched")
		trainJob := &v1alpha1.TrainJob{}
		for _, name := range patched {
			trainJob.Spec.RuntimePatches = append(trainJob.Spec.RuntimePatches,
				podPatch("x/"+name, name, &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"patched": name}}))
		}
		info, err := New(trainJob, runtimeOf(jobs...))
		if err != nil {
			t.Fatal(err)
		}
		for i, podSet := range info.PodSets {
			if podSet.Job.Name != names[i] {
				t.Fatalf("job %d is %s, want %s", i, podSet.Job.Name, names[i])
			}
			want := ""
			if slices.Contains(patched, names[i]) {
				want = names[i]
			}
			if got := podSet.PodSpec().NodeSelector["patched"]; got != want {
				t.Fatalf("job %s has the patch of %q, want %q", names[i], got, want)
			}
		}
	})
}

func TestPatchOfMetadata(t *testing.T) {
	patch := podPatch("a/b", "node", nil)
	template := patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template
	template.Metadata = &metav1.ObjectMeta{Labels: map[string]string{"job": "yes"}}
	template.Spec.Template.Metadata = &metav1.ObjectMeta{Annotations: map[string]string{"pod": "yes"}}
	trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{RuntimePatches: []v1alpha1.RuntimePatch{patch}}}
	info := newInfo(t, trainJob, runtimeOf(job("node", "trainer", "node")))
	want := batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.AncestorLabel: "trainer", "job": "yes"}}}
	want.Spec.Template.Annotations = map[string]string{"pod": "yes"}
	want.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node"}}
	if diff := cmp.Diff(want, info.JobSet.ReplicatedJobs[0].Template); diff != "" {
		t.Errorf("template (-want +got)\n%s", diff)
	}
}
