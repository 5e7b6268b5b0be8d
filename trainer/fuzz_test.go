package trainer

import (
	"context"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// What the API server's schema lets through, and more, ends in objects or in errors that name fields.
func TestAnythingEndsInObjectsOrErrors(t *testing.T) {
	rapid.Check(t, endsInObjectsOrErrors(newPipeline(t)))
}

// FuzzPipeline looks on where TestAnythingEndsInObjectsOrErrors stops:
//
//	go test -vet=off -run '^$' -fuzz FuzzPipeline ./trainer
func FuzzPipeline(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(endsInObjectsOrErrors(newPipeline(f))))
}

func newPipeline(t testing.TB) *framework.Framework {
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	return framework.New(plugins.All(c, c, "muster-scheduler")...)
}

func endsInObjectsOrErrors(f *framework.Framework) func(t *rapid.T) {
	return func(t *rapid.T) {
		trainJob, spec := anyTrainJob(t), anyRuntimeSpec(t)
		jobBefore, specBefore := trainJob.DeepCopy(), spec.DeepCopy()
		objects, errs := pipeline(t, f, trainJob, spec)
		if !equality.Semantic.DeepEqual(jobBefore, trainJob) || !equality.Semantic.DeepEqual(specBefore, spec) {
			t.Fatal("the inputs, which belong to a cache, changed")
		}
		for _, err := range errs {
			if !strings.HasPrefix(err.Field, "spec.") && !strings.HasPrefix(err.Field, "runtime.spec.") && err.Field != "metadata.name" {
				t.Fatalf("%v names no field of the TrainJob or its runtime", err)
			}
		}
		if len(errs) == 0 {
			check(t, trainJob, objects)
		}
	}
}

// pipeline does with a TrainJob what the controller does, up to the objects.
func pipeline(t *rapid.T, f *framework.Framework, trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) ([]client.Object, field.ErrorList) {
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		// The text begins with the field.
		path, _, _ := strings.Cut(err.Error(), " ")
		return nil, field.ErrorList{{Type: field.ErrorTypeInvalid, Field: path, Detail: err.Error()}}
	}
	if errs := f.Validate(info, trainJob); len(errs) > 0 {
		return nil, errs
	}
	components, err := f.Build(context.Background(), info, trainJob)
	if err != nil {
		t.Fatalf("what was accepted cannot be built: %v", err)
	}
	var objects []client.Object
	for _, component := range components {
		objects = append(objects, component.Objects...)
	}
	return objects, nil
}

// check checks what holds of the children of every TrainJob.
func check(t *rapid.T, trainJob *v1alpha1.TrainJob, objects []client.Object) {
	names := sets.New[string]()
	var jobSet *jobsetv1alpha2.JobSet
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		if kind == "" || object.GetNamespace() != trainJob.Namespace || !metav1.IsControlledBy(object, trainJob) {
			t.Fatalf("%s %s is not the TrainJob's: %+v", kind, object.GetName(), object)
		}
		names.Insert(kind + "/" + object.GetName())
		switch object := object.(type) {
		case *jobsetv1alpha2.JobSet:
			jobSet = object
		case *podgroup.PodGroup:
			if object.Spec.MinMember < 1 {
				t.Fatalf("PodGroup %s of %d", object.Name, object.Spec.MinMember)
			}
		case *corev1.ConfigMap:
			bytes := 0
			for _, data := range object.Data {
				bytes += len(data)
			}
			// What the API server allows, less nothing: the hostfile's limit is its own.
			if bytes > corev1.MaxSecretSize {
				t.Fatalf("ConfigMap %s has %d bytes", object.Name, bytes)
			}
		case *corev1.Secret:
			if len(object.Data) != 0 {
				t.Fatalf("Secret %s is made on every reconcile", object.Name)
			}
		}
	}
	if jobSet == nil || len(names) != len(objects) {
		t.Fatalf("objects = %v", names)
	}
	for i := range jobSet.Spec.ReplicatedJobs {
		job := &jobSet.Spec.ReplicatedJobs[i]
		if *job.Template.Spec.Parallelism < 0 || *job.Template.Spec.Parallelism != *job.Template.Spec.Completions {
			t.Fatalf("job %s has parallelism %d, completions %d", job.Name, *job.Template.Spec.Parallelism, *job.Template.Spec.Completions)
		}
		pod := &job.Template.Spec.Template.Spec
		volumes := sets.New[string]()
		for _, volume := range pod.Volumes {
			if volumes.Has(volume.Name) {
				t.Fatalf("job %s has two volumes %s", job.Name, volume.Name)
			}
			volumes.Insert(volume.Name)
			if secret := volume.Secret; secret != nil && !names.Has("Secret/"+secret.SecretName) {
				t.Fatalf("job %s mounts Secret %s, which nobody makes", job.Name, secret.SecretName)
			}
			if config := volume.ConfigMap; config != nil && !names.Has("ConfigMap/"+config.Name) {
				t.Fatalf("job %s mounts ConfigMap %s, which nobody makes", job.Name, config.Name)
			}
		}
		for _, container := range pod.Containers {
			set := map[string]int{}
			for _, env := range container.Env {
				set[env.Name]++
			}
			for _, name := range []string{"PET_NNODES", "JAX_PROCESS_ID", "DMLC_NUM_WORKER", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"} {
				if set[name] > 1 {
					t.Fatalf("job %s sets %s twice", job.Name, name)
				}
			}
		}
	}
}

// Draws of what may be odd, but mostly is right: else nearly all would be refused for the first reason.

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func odd(t *rapid.T) bool {
	return rapid.IntRange(0, 15).Draw(t, "odd") == 15
}

func maybe[T any](t *rapid.T, label string, draw func() T) *T {
	if !rapid.Bool().Draw(t, label+"?") {
		return nil
	}
	value := draw()
	return &value
}

func anyCount(t *rapid.T) int32 {
	if odd(t) {
		return oneOf[int32](t, "count", 0, -1, 20000, math.MaxInt32, math.MinInt32)
	}
	return oneOf[int32](t, "count", 1, 2, 3, 8, 100)
}

// anyWord returns a name: the right one or, at times, another.
func anyWord(t *rapid.T, right string) string {
	if odd(t) {
		return oneOf(t, "word", "node", "launcher", "dataset-initializer", "model-initializer", "sidecar", "flux-installer", "", "a b", "ü", strings.Repeat("long", 20))
	}
	return right
}

func anyResources(t *rapid.T) corev1.ResourceRequirements {
	list := func() corev1.ResourceList {
		list := corev1.ResourceList{}
		for range rapid.IntRange(0, 3).Draw(t, "resources") {
			name := oneOf[corev1.ResourceName](t, "resource", "cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpumem", "habana.ai/gaudi", "google.com/tpu", "example.com/gpu", "")
			list[name] = resource.MustParse(oneOf(t, "amount", "0", "1", "2", "8", "100m", "1500m", "9E", "-1", "1Ti", "0.5"))
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: list(), Limits: list()}
}

func anyEnv(t *rapid.T) []corev1.EnvVar {
	var env []corev1.EnvVar
	variables := []string{"A", "B", "C", "STORAGE_URI", "FLUX_NETWORK_DEVICE", "FLUX_QUEUE_POLICY"}
	if odd(t) {
		variables = append(variables, "", "PET_NNODES", "JAX_PROCESS_ID", "DMLC_TASK_ID", "OMPI_MCA_plm_rsh_args", "FLUX_VIEW_IMAGE")
	}
	// The schema lets no name through twice.
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(variables), 0, 3, rapid.ID[string]).Draw(t, "variables") {
		variable := corev1.EnvVar{Name: name, Value: "1"}
		if odd(t) {
			variable.Value = oneOf(t, "text", "", "\"", "x\ny", "'")
		} else if odd(t) {
			variable.ValueFrom = &corev1.EnvVarSource{}
		}
		env = append(env, variable)
	}
	return env
}

func anyWords(t *rapid.T) []string {
	if odd(t) {
		return oneOf(t, "words", []string{"tune", "run", "output_dir=/x"}, []string{"=", "output_dir"}, []string{""})
	}
	return oneOf(t, "words", nil, []string{}, []string{"tune", "run"}, []string{"python", "a b"}, []string{"model.lora_attn_modules=[q]"}, []string{"model.quantize_base=True"})
}

func anyContainers(t *rapid.T, first string) []corev1.Container {
	var containers []corev1.Container
	for _, name := range []string{anyWord(t, first), "sidecar"} {
		container := corev1.Container{Name: name, Command: anyWords(t), Args: anyWords(t), Env: anyEnv(t), Resources: anyResources(t)}
		if rapid.Bool().Draw(t, "port") {
			container.Ports = []corev1.ContainerPort{{ContainerPort: oneOf[int32](t, "port", 0, 22, 29500, -5), Name: anyWord(t, "")}}
		}
		container.VolumeMounts = []corev1.VolumeMount{{Name: anyWord(t, "initializer"), MountPath: oneOf(t, "path", "/workspace", "/etc/mpi", "/mnt/flux", "/root/.ssh", "")}}
		containers = append(containers, container)
	}
	return containers
}

func anyJob(t *rapid.T, name string) jobsetv1alpha2.ReplicatedJob {
	job := jobsetv1alpha2.ReplicatedJob{Name: anyWord(t, name), Replicas: 1}
	if odd(t) {
		job.Replicas = oneOf[int32](t, "replicas", 0, 2, -1, math.MaxInt32)
	}
	container := name
	switch name {
	case "node", "launcher":
		container = "node"
		if rapid.Bool().Draw(t, "trainer") {
			job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
		}
	default:
		job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: anyWord(t, name)}
	}
	job.Template.Spec.Parallelism = maybe(t, "parallelism", func() int32 { return anyCount(t) })
	job.Template.Spec.Template.Spec.Containers = anyContainers(t, container)
	if rapid.Bool().Draw(t, "initContainers") {
		job.Template.Spec.Template.Spec.InitContainers = anyContainers(t, "preflight")
	}
	if rapid.Bool().Draw(t, "depends") {
		job.DependsOn = []jobsetv1alpha2.DependsOn{{Name: anyWord(t, "dataset-initializer"), Status: jobsetv1alpha2.DependencyReady}}
	}
	return job
}

func anyRuntimeSpec(t *rapid.T) *v1alpha1.TrainingRuntimeSpec {
	spec := &v1alpha1.TrainingRuntimeSpec{}
	for _, name := range []string{"dataset-initializer", "model-initializer", "node", "launcher"} {
		if rapid.IntRange(0, 3).Draw(t, "has "+name) > 0 {
			spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, anyJob(t, name))
		}
	}
	spec.Template.Spec.Network = maybe(t, "network", func() jobsetv1alpha2.Network { return jobsetv1alpha2.Network{Subdomain: anyWord(t, "mesh")} })
	spec.Template.Spec.StartupPolicy = maybe(t, "startup", func() jobsetv1alpha2.StartupPolicy {
		return jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobsetv1alpha2.InOrder}
	})
	spec.MLPolicy = maybe(t, "policy", func() v1alpha1.MLPolicy {
		policy := v1alpha1.MLPolicy{NumNodes: maybe(t, "numNodes", func() int32 { return anyCount(t) })}
		switch oneOf(t, "framework", "", "torch", "mpi", "jax", "xgboost", "flux") {
		case "torch":
			policy.Torch = &v1alpha1.TorchMLPolicySource{EnvInjection: maybe(t, "injection", func() v1alpha1.EnvInjection {
				return v1alpha1.EnvInjection{Targets: []v1alpha1.EnvInjectionTarget{{JobName: anyWord(t, "node"), ContainerNames: []string{anyWord(t, "sidecar")}}}}
			})}
		case "mpi":
			policy.MPI = &v1alpha1.MPIMLPolicySource{
				NumProcPerNode: maybe(t, "slots", func() int32 { return anyCount(t) }),
				MPIImplementation: maybe(t, "implementation", func() v1alpha1.MPIImplementation {
					return oneOf[v1alpha1.MPIImplementation](t, "mpi", "OpenMPI", "", "x")
				}),
				SSHAuthMountPath:  maybe(t, "mount", func() string { return oneOf(t, "ssh", "/root/.ssh", "/home/mpiuser/.ssh", "", "relative") }),
				RunLauncherAsNode: maybe(t, "asNode", func() bool { return rapid.Bool().Draw(t, "asNode") }),
			}
		case "jax":
			policy.JAX = &v1alpha1.JAXMLPolicySource{}
		case "xgboost":
			policy.XGBoost = &v1alpha1.XGBoostMLPolicySource{}
		case "flux":
			policy.Flux = &v1alpha1.FluxMLPolicySource{NumProcPerNode: maybe(t, "tasks", func() int32 { return anyCount(t) })}
		}
		return policy
	})
	spec.PodGroupPolicy = maybe(t, "gang", func() v1alpha1.PodGroupPolicy {
		policy := v1alpha1.PodGroupPolicy{}
		if rapid.Bool().Draw(t, "volcano") {
			policy.Volcano = &v1alpha1.VolcanoPodGroupPolicySource{}
		}
		if policy.Volcano == nil || odd(t) {
			policy.Coscheduling = &v1alpha1.CoschedulingPodGroupPolicySource{ScheduleTimeoutSeconds: maybe(t, "timeout", func() int32 { return anyCount(t) })}
		}
		return policy
	})
	if odd(t) {
		spec.Template.Annotations = map[string]string{gang.APIAnnotation: anyWord(t, string(gang.Native))}
	}
	return spec
}

func anyTrainJob(t *rapid.T) *v1alpha1.TrainJob {
	trainJob := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "research", Name: oneOf(t, "name", "llm", "a", "llm-2", strings.Repeat("x", 30), strings.Repeat("x", 63)), UID: "u",
	}}
	trainJob.Spec.RuntimeRef.Name = oneOf(t, "runtime", "torchtune-llama3.2-1b", "torchtune-llama3.3-70b", "torchtune-qwen2.5-1.5b-gang", "torch-distributed", "-", "")
	trainJob.Spec.Suspend = maybe(t, "suspend", func() bool { return rapid.Bool().Draw(t, "suspend") })
	trainJob.Spec.Trainer = maybe(t, "trainer", func() v1alpha1.Trainer {
		return v1alpha1.Trainer{
			Image:            maybe(t, "image", func() string { return "train" }),
			Command:          anyWords(t),
			Args:             anyWords(t),
			Env:              anyEnv(t),
			NumNodes:         maybe(t, "numNodes", func() int32 { return anyCount(t) }),
			NumProcPerNode:   maybe(t, "numProcPerNode", func() int32 { return anyCount(t) }),
			ResourcesPerNode: maybe(t, "resources", func() corev1.ResourceRequirements { return anyResources(t) }),
		}
	})
	trainJob.Spec.Initializer = maybe(t, "initializer", func() v1alpha1.Initializer {
		return v1alpha1.Initializer{
			Dataset: maybe(t, "dataset", func() v1alpha1.DatasetInitializer {
				return v1alpha1.DatasetInitializer{StorageURI: maybe(t, "uri", func() string { return "hf://x" }), Env: anyEnv(t)}
			}),
			Model: maybe(t, "model", func() v1alpha1.ModelInitializer {
				return v1alpha1.ModelInitializer{Env: anyEnv(t), SecretRef: maybe(t, "secret", func() corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: "hub"} })}
			}),
		}
	})
	for range rapid.IntRange(0, 2).Draw(t, "patches") {
		trainJob.Spec.RuntimePatches = append(trainJob.Spec.RuntimePatches, anyPatch(t))
	}
	return trainJob
}

func anyPatch(t *rapid.T) v1alpha1.RuntimePatch {
	patch := v1alpha1.RuntimePatch{Manager: anyWord(t, "kueue.x-k8s.io/manager")}
	patch.TrainingRuntimeSpec = maybe(t, "spec", func() v1alpha1.TrainingRuntimeSpecPatch {
		return v1alpha1.TrainingRuntimeSpecPatch{Template: maybe(t, "template", func() v1alpha1.JobSetTemplatePatch {
			return v1alpha1.JobSetTemplatePatch{Spec: maybe(t, "jobset", func() v1alpha1.JobSetSpecPatch {
				return v1alpha1.JobSetSpecPatch{ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{
					Name: anyWord(t, "node"),
					Template: maybe(t, "job", func() v1alpha1.JobTemplatePatch {
						return v1alpha1.JobTemplatePatch{Spec: maybe(t, "jobspec", func() v1alpha1.JobSpecPatch {
							return v1alpha1.JobSpecPatch{Template: maybe(t, "pod", func() v1alpha1.PodTemplatePatch {
								return v1alpha1.PodTemplatePatch{Spec: maybe(t, "podspec", func() v1alpha1.PodSpecPatch {
									return v1alpha1.PodSpecPatch{
										NodeSelector: map[string]string{"pool": anyWord(t, "gpu")},
										Containers:   []v1alpha1.ContainerPatch{{Name: anyWord(t, "sidecar"), Env: anyEnv(t)}},
									}
								})}
							})}
						})}
					}),
				}}}
			})}
		})}
	})
	return patch
}
