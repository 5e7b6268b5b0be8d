package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// kubeflowTrainer returns the directory of Kubeflow Trainer's module, of the version that Muster is compared with.
func kubeflowTrainer(t *testing.T) string {
	t.Helper()
	var stderr bytes.Buffer
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/kubeflow/trainer/v2")
	download.Dir, download.Stderr = "../../hack/conformance", &stderr
	out, err := download.Output()
	module := struct{ Dir string }{}
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		t.Fatalf("downloading Kubeflow Trainer's module: %v: %s%s", err, out, stderr.String())
	}
	return module.Dir
}

// filesBelow returns the paths, relative to a directory, of the files with an extension.
func filesBelow(t *testing.T, dir, extension string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != extension {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, relative)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// apply does what kubectl apply --server-side does with a file, and returns the objects in it.
func (s *scene) apply(namespace, file string) []*unstructured.Unstructured {
	s.Helper()
	content, err := os.ReadFile(file)
	s.must(err)
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		s.must(err)
		if len(object.Object) == 0 {
			// Nothing but comments.
			continue
		}
		if object.GetKind() != trainer.ClusterTrainingRuntimeKind {
			object.SetNamespace(namespace)
		}
		if err := kube.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")); err != nil {
			s.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
}

// asDefaultScheduler has Muster schedule, until the test ends, the pods that name no scheduler too.
func asDefaultScheduler(t *testing.T) {
	t.Helper()
	start := func(mutate func(*configv1.KubeSchedulerConfiguration)) {
		scheduler.Stop()
		var err error
		if scheduler, err = startSchedulerWith(context.Background(), mutate); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { start(nil) })
	start(func(config *configv1.KubeSchedulerConfiguration) {
		profile := config.Profiles[0].DeepCopy()
		profile.SchedulerName = ptr.To(corev1.DefaultSchedulerName)
		config.Profiles = append(config.Profiles, *profile)
	})
}

func (s *scene) ownRuntimes() []*unstructured.Unstructured {
	s.Helper()
	objects, err := manifests.Runtimes()
	s.must(err)
	var runtimes []*unstructured.Unstructured
	for _, object := range objects {
		s.must(kube.Create(s.ctx, object.DeepCopy()))
		runtimes = append(runtimes, object)
	}
	return runtimes
}

// upstreamRuntimes applies the manifests of Kubeflow Trainer's own runtimes.
func (s *scene) upstreamRuntimes(upstream string) []*unstructured.Unstructured {
	s.Helper()
	base := filepath.Join(upstream, "manifests/base/runtimes")
	var runtimes []*unstructured.Unstructured
	for _, file := range filesBelow(s.T, base, ".yaml") {
		if filepath.Base(file) != "kustomization.yaml" && !strings.HasPrefix(file, "data-cache/") {
			runtimes = append(runtimes, s.apply("", filepath.Join(base, file))...)
		}
	}
	if len(runtimes) != 8 {
		s.Fatalf("Kubeflow Trainer ships %d runtimes", len(runtimes))
	}
	return runtimes
}

// replaceRuntimes leaves no cluster runtimes but the given ones, and waits until the trainer knows them.
func (s *scene) replaceRuntimes(make func(*scene) []*unstructured.Unstructured, more ...string) {
	s.Helper()
	s.must(kube.DeleteAllOf(s.ctx, &trainer.ClusterTrainingRuntime{}))
	made := make(s)
	for _, file := range more {
		made = append(made, s.apply("", file)...)
	}
	s.Cleanup(func() {
		for _, runtime := range made {
			_ = kube.Delete(context.Background(), runtime)
		}
	})
	// Runtimes come to the trainer in the order in which they were made.
	last := &trainer.ClusterTrainingRuntime{}
	s.must(kube.Get(s.ctx, types.NamespacedName{Name: made[len(made)-1].GetName()}, last))
	n := 0
	s.await("the trainer to see the new runtimes", func() string {
		n++
		probe := s.trainJob(fmt.Sprintf("probe-%d", n), last.Name, 1, 0)
		probe.Spec.Suspend = ptr.To(true)
		s.must(kube.Create(s.ctx, probe))
		snapshot := &corev1.ConfigMap{}
		s.await("snapshot", func() string { return errorText(kube.Get(s.ctx, s.key(probe.Name+"-runtime-snapshot"), snapshot)) })
		if !strings.Contains(snapshot.Data["runtime"], string(last.UID)) {
			return "it uses an older one"
		}
		return ""
	})
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// exampleCluster makes the nodes and volumes that the examples are written for.
func (s *scene) exampleCluster() {
	s.Helper()
	s.nodes(6, controlplane.NodeShape{Labels: map[string]string{"node-type": "training"}})
	tpu := s.nodes(1, controlplane.NodeShape{NamePrefix: "tpu", Labels: map[string]string{
		"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x2",
	}})
	patch := []byte(`{"status":{"capacity":{"google.com/tpu":"4"},"allocatable":{"google.com/tpu":"4"}}}`)
	s.must(kube.Status().Patch(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tpu[0]}}, client.RawPatch(types.MergePatchType, patch)))
	// One for each example of TorchTune.
	for i := range 2 {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "example-"}}
		volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
		volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: fmt.Sprintf("/example/%d", i)}
		s.must(kube.Create(s.ctx, volume))
		s.Cleanup(func() { s.must(client.IgnoreNotFound(kube.Delete(context.Background(), volume))) })
	}
}

// exampleRun is an example that runs.
type exampleRun struct {
	upstreamExample
	file      string
	namespace string

	// seen are the replicated jobs of the pods that ran, by the pods' names.
	seen map[string]string
}

// runExamples applies the files of the examples, all in one namespace but for TrainJobs of the same name.
func (s *scene) runExamples(files map[string]string) []*exampleRun {
	s.Helper()
	var runs []*exampleRun
	taken := map[string]bool{}
	s.exampleAccounts(s.namespace)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		run := &exampleRun{upstreamExample: upstreamExamples[name], file: name, namespace: s.namespace, seen: map[string]string{}}
		if taken[run.job] {
			run.namespace = s.newNamespace()
			s.exampleAccounts(run.namespace)
		}
		taken[run.job] = true
		run.start(s, files[name])
		runs = append(runs, run)
	}
	return runs
}

// exampleAccounts makes the service accounts that examples name and do not bring.
func (s *scene) exampleAccounts(namespace string) {
	s.Helper()
	for _, name := range []string{"training-sa", "kubeflow-trainer-cache-initializer"} {
		s.must(kube.Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
	}
}

// start applies an example, twice as people do, and does what it asks the reader to do.
func (r *exampleRun) start(s *scene, file string) {
	s.Helper()
	for _, object := range s.apply(r.namespace, file) {
		if object.GetKind() == trainer.ClusterTrainingRuntimeKind {
			s.Cleanup(func() { _ = kube.Delete(context.Background(), object) })
		}
	}
	job := r.trainJob(s)
	s.apply(r.namespace, file)
	if again := r.trainJob(s); again.Generation != job.Generation || again.UID != job.UID {
		s.Errorf("%s: applied again, the TrainJob changed: %v", file, cmp.Diff(job.Spec, again.Spec))
	}
	if !ptr.Deref(job.Spec.Suspend, false) {
		return
	}
	// Kueue's part.
	s.await(file, func() string {
		if job = r.trainJob(s); !meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobSuspended) {
			return "not suspended"
		}
		return ""
	})
	s.must(kube.Patch(s.ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))))
}

func (r *exampleRun) trainJob(s *scene) *trainer.TrainJob {
	s.Helper()
	job := &trainer.TrainJob{}
	s.must(kube.Get(s.ctx, r.key(), job))
	return job
}

func (r *exampleRun) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: r.job}
}

// complete plays the programs in the pods until all TrainJobs are complete, and then checks what pods there were. It has
// patience with each step: so many TrainJobs together may take long on a busy machine.
func (s *scene) complete(runs []*exampleRun) {
	s.Helper()
	for done, progress := false, -1; !done; {
		s.await("the examples", func() string {
			pods := &corev1.PodList{}
			s.must(kube.List(s.ctx, pods, client.HasLabels{jobset.JobSetNameKey}))
			byJob := map[types.NamespacedName][]corev1.Pod{}
			for _, pod := range pods.Items {
				key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[jobset.JobSetNameKey]}
				byJob[key] = append(byJob[key], pod)
			}
			var open []string
			now := 0
			for _, run := range runs {
				if left := run.step(s, byJob[run.key()]); left != "" {
					open = append(open, left)
				} else {
					now++
				}
				now += len(run.seen)
			}
			if done = len(open) == 0; done || now > progress {
				progress = now
				return ""
			}
			return strings.Join(open, "\n")
		})
	}
	for _, run := range runs {
		got := map[string]int{}
		for _, job := range run.seen {
			got[job]++
		}
		if diff := cmp.Diff(run.pods, got); diff != "" {
			s.Errorf("%s: pods (-want +got)\n%s", run.file, diff)
		}
	}
}

// step looks at the pods of an example, and ends those whose work is done. It says what is left.
func (r *exampleRun) step(s *scene, pods []corev1.Pod) string {
	s.Helper()
	job := r.trainJob(s)
	if failed := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobFailed); failed != nil {
		s.Fatalf("%s: %s", r.file, failed.Message)
	}
	running := map[string][]string{}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		replicated := replicatedJobOf(*pod)
		running[replicated] = append(running[replicated], pod.Name)
		if _, known := r.seen[pod.Name]; known {
			continue
		}
		r.seen[pod.Name] = replicated
		container := "node"
		if replicated == dataset || replicated == model {
			container = replicated
		}
		if diff := cmp.Diff(r.env[replicated], env(pod, container)); diff != "" {
			s.Errorf("%s: env of %s (-want +got)\n%s", r.file, pod.Name, diff)
		}
	}
	if meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete) {
		return ""
	}
	for replicated, names := range running {
		// Nodes end together, and those of MPI when mpirun does.
		if _, launches := r.pods["launcher"]; launches && replicated == "node" || len(names) < r.pods[replicated] {
			continue
		}
		for _, name := range names {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
			if err := kube.Status().Patch(s.ctx, pod, patch); err != nil && !apierrors.IsNotFound(err) {
				s.Fatalf("%s: %v", r.file, err)
			}
		}
	}
	return fmt.Sprintf("%s: %d of %d pods ran, running %v; %s", r.file, len(r.seen), total(r.pods), running, conditionTexts(job.Status.Conditions))
}

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

func conditionTexts(conditions []metav1.Condition) string {
	var texts []string
	for _, c := range conditions {
		texts = append(texts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return strings.Join(texts, ", ")
}
