package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// wrongTrainJobs are TrainJobs that cannot be carried out, and the field that whoever made them is told.
var wrongTrainJobs = []struct {
	name  string
	wrong func(*trainer.TrainJob)
	want  string
}{
	{"no nodes", func(j *trainer.TrainJob) { j.Spec.Trainer.NumNodes = ptr.To[int32](0) }, "spec.trainer.numNodes: Invalid value: 0"},
	{"a reserved variable", func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "PET_NNODES", Value: "7"}}
	}, "spec.trainer.env[0].name"},
	{"no such kind of runtime", func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Kind = ptr.To("Recipe") }, "spec.runtimeRef: Invalid value: \"Recipe.trainer.kubeflow.org\""},
	{"no place for an initializer", func(j *trainer.TrainJob) {
		j.Spec.Initializer = &trainer.Initializer{Model: &trainer.ModelInitializer{}}
	}, "spec.initializer.model"},
	{"a patch of a job that is not there", func(j *trainer.TrainJob) {
		j.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("example.com/m", "nodes", trainer.PodSpecPatch{})}
	}, "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name"},
	{"a patch of a container that is not there", func(j *trainer.TrainJob) {
		j.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("example.com/m", "node", trainer.PodSpecPatch{Containers: []trainer.ContainerPatch{{Name: "main"}}})}
	}, "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].name"},
	{"a manager without a domain", func(j *trainer.TrainJob) {
		j.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("me", "node", trainer.PodSpecPatch{})}
	}, "spec.runtimePatches[0].manager"},
	{"a name too long for its pods", func(j *trainer.TrainJob) { j.Name = strings.Repeat("long", 14) }, "metadata.name"},
	{"several at once", func(j *trainer.TrainJob) {
		j.Spec.Trainer.NumNodes, j.Spec.Trainer.NumProcPerNode = ptr.To[int32](-1), ptr.To[int32](0)
	}, "spec.trainer.numProcPerNode: Invalid value: 0"},
}

func patchOf(manager, job string, pod trainer.PodSpecPatch) trainer.RuntimePatch {
	return trainer.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
		Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
			Name: job, Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &pod}}},
		}}}},
	}}
}

// Whoever submits a wrong TrainJob reads the same, from the webhook or, where there is none, in the TrainJob's
// condition.
func TestWrongTrainJobsAreToldTheSame(t *testing.T) {
	denials := map[string]string{}
	t.Run("webhooks on", func(t *testing.T) {
		pauseScheduler(t)
		s := newScene(t)
		s.startWithWebhooks("overlays/with-webhooks")
		s.runtimes()
		for _, tc := range wrongTrainJobs {
			err := kube.Create(s.ctx, s.wrongTrainJob(tc.wrong))
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
				continue
			}
			_, denials[tc.name], _ = strings.Cut(err.Error(), `"validator.trainjob.trainer.kubeflow.org" denied the request: `)
		}
		s.must(kube.Create(s.ctx, s.wrongTrainJob(func(*trainer.TrainJob) {})))
	})
	t.Run("webhooks off", func(t *testing.T) {
		s := newScene(t)
		s.runtimes()
		for _, tc := range wrongTrainJobs {
			job := s.wrongTrainJob(tc.wrong)
			s.must(kube.Create(s.ctx, job))
			if got := s.awaitFailed(job.Name); got != denials[tc.name] || got == "" {
				t.Errorf("%s: the condition says %q, the webhook %q", tc.name, got, denials[tc.name])
			}
			s.must(kube.Delete(s.ctx, job))
		}
	})
}

func (s *scene) wrongTrainJob(wrong func(*trainer.TrainJob)) *trainer.TrainJob {
	job := s.trainJob("wrong", "torch-distributed", 2, 8)
	wrong(job)
	return job
}

// awaitFailed waits until a TrainJob has failed and returns why.
func (s *scene) awaitFailed(name string) string {
	s.Helper()
	s.awaitTrainJob(name, trainer.TrainJobFailed)
	job := &trainer.TrainJob{}
	s.must(kube.Get(s.ctx, s.key(name), job))
	return meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobFailed).Message
}

// The webhooks as they are deployed: with the certificates, rights and routes of the manifests.
func TestWebhooks(t *testing.T) {
	pauseScheduler(t)
	s := newScene(t)
	s.startWithWebhooks("overlays/with-webhooks")
	s.runtimes()
	const runtime = "torch-distributed"
	create := func(change func(*trainer.TrainJob)) *trainer.TrainJob {
		job := s.trainJob("llm", runtime, 1, 0)
		job.GenerateName, job.Name = "llm-", ""
		change(job)
		s.must(kube.Create(s.ctx, job))
		return job
	}
	suspend := func(j *trainer.TrainJob) { j.Spec.Suspend = ptr.To(true) }
	selector := func(value string) trainer.RuntimePatch {
		return patchOf("kueue.x-k8s.io/manager", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"pool": value}})
	}

	t.Run("a runtime must be there", func(t *testing.T) {
		job := s.trainJob("early", "nowhere", 1, 0)
		if err := kube.Create(s.ctx, job); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "there is no ClusterTrainingRuntime of this name") {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("a wrong runtime is refused", func(t *testing.T) {
		wrong := &trainer.TrainingRuntime{}
		wrong.Namespace, wrong.Name = s.namespace, "wrong"
		shipped := &trainer.ClusterTrainingRuntime{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Name: runtime}, shipped))
		wrong.Spec = shipped.Spec
		wrong.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "main"
		if err := kube.Create(s.ctx, wrong.DeepCopy()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.template.spec.replicatedJobs[0]") {
			t.Errorf("created: %v", err)
		}
		unchecked := wrong.DeepCopy()
		unchecked.Labels = map[string]string{"trainer.kubeflow.org/webhook-validation": "disabled"}
		s.must(kube.Create(s.ctx, unchecked))
		// The label goes, the runtime is wrong still, and an update that leaves it so is no new error.
		unchecked.Labels = nil
		s.must(kube.Update(s.ctx, unchecked))
		unchecked.Spec.MLPolicy.NumNodes = ptr.To[int32](2)
		if err := kube.Update(s.ctx, unchecked); !apierrors.IsForbidden(err) {
			t.Errorf("updated: %v", err)
		}
	})
	t.Run("users of a deprecated runtime are warned", func(t *testing.T) {
		old := &trainer.TrainingRuntime{}
		old.Namespace, old.Name, old.Labels = s.namespace, "old", map[string]string{"trainer.kubeflow.org/support": "deprecated"}
		shipped := &trainer.ClusterTrainingRuntime{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Name: runtime}, shipped))
		old.Spec = shipped.Spec
		warned := &warnings{}
		config := cluster.REST()
		config.WarningHandler = warned
		listening, err := client.New(config, client.Options{Scheme: kube.Scheme()})
		s.must(err)
		s.must(listening.Create(s.ctx, old))
		job := s.trainJob("on-old", "old", 1, 0)
		job.Spec.RuntimeRef.Kind = ptr.To("TrainingRuntime")
		s.must(listening.Create(s.ctx, job))
		if got := warned.all(); len(got) != 2 || !strings.Contains(got[0], `TrainingRuntime "old" is deprecated`) || got[0] != got[1] {
			t.Errorf("warnings = %q", got)
		}
	})
	t.Run("patches tell when they were written", func(t *testing.T) {
		job := create(func(j *trainer.TrainJob) { suspend(j); j.Spec.RuntimePatches = []trainer.RuntimePatch{selector("a")} })
		first := job.Spec.RuntimePatches[0].Time
		if first == nil || time.Since(first.Time) > patience {
			t.Fatalf("time = %v", first)
		}
		s.change(job, func() { job.Labels = map[string]string{"a": "b"}; job.Spec.RuntimePatches[0].Time = nil })
		if got := job.Spec.RuntimePatches[0].Time; !got.Equal(first) {
			t.Errorf("time of an unchanged patch = %v, was %v", got, first)
		}
		// A manager that appends its patch anew has one, its last.
		s.change(job, func() { job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, selector("b")) })
		if got := job.Spec.RuntimePatches; len(got) != 1 || got[0].Time == nil ||
			got[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["pool"] != "b" {
			t.Errorf("patches = %+v", got)
		}
	})
	t.Run("patches change only while suspended and without pods", func(t *testing.T) {
		job := create(func(j *trainer.TrainJob) { j.Spec.RuntimePatches = []trainer.RuntimePatch{selector("a")} })
		s.await("pods of "+job.Name, func() string {
			s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(job), job))
			for _, status := range job.Status.JobsStatus {
				if *status.Active > 0 {
					return ""
				}
			}
			return "none are active"
		})
		s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(job), job))
		job.Spec.RuntimePatches = []trainer.RuntimePatch{selector("b")}
		if err := kube.Update(s.ctx, job.DeepCopy()); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("while running: %v", err)
		}
		job.Spec.Suspend = ptr.To(true)
		if err := kube.Update(s.ctx, job.DeepCopy()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "while pods of the replicated job node are left") {
			t.Errorf("with suspending, while pods are left: %v", err)
		}
		s.change(job, func() { job.Spec.Suspend = ptr.To(true) })
		s.await("the patch of a suspended TrainJob", func() string {
			s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(job), job))
			job.Spec.RuntimePatches = []trainer.RuntimePatch{selector("b")}
			if err := kube.Update(s.ctx, job); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	t.Run("updates are checked against the snapshot", func(t *testing.T) {
		shipped := &trainer.ClusterTrainingRuntime{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Name: runtime}, shipped))
		own := &trainer.TrainingRuntime{}
		own.Namespace, own.Name, own.Spec = s.namespace, "own", shipped.Spec
		s.must(kube.Create(s.ctx, own))
		job := create(func(j *trainer.TrainJob) {
			suspend(j)
			j.Spec.RuntimeRef = trainer.RuntimeRef{Name: "own", Kind: ptr.To("TrainingRuntime")}
		})
		s.await("snapshot", func() string {
			if err := kube.Get(s.ctx, s.key(job.Name+"-runtime-snapshot"), &corev1.ConfigMap{}); err != nil {
				return err.Error()
			}
			return ""
		})
		s.must(kube.Delete(s.ctx, own))
		s.change(job, func() { job.Spec.RuntimePatches = []trainer.RuntimePatch{selector("a")} })
	})
	t.Run("a lost certificate is made anew", func(t *testing.T) {
		secret := &corev1.Secret{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: musterNamespace, Name: "muster-webhooks-cert"}, secret))
		old := string(secret.Data["ca.crt"])
		secret.Data = nil
		s.must(kube.Update(s.ctx, secret))
		s.await("a new certificate", func() string {
			config := &admissionv1.ValidatingWebhookConfiguration{}
			s.must(kube.Get(s.ctx, client.ObjectKey{Name: "validator.trainer.kubeflow.org"}, config))
			if bundle := string(config.Webhooks[0].ClientConfig.CABundle); bundle == "" || bundle == old {
				return "the old authority is trusted still"
			}
			job := s.trainJob("after", "nowhere", 1, 0)
			if err := kube.Create(s.ctx, job); err == nil || !strings.Contains(err.Error(), "there is no ClusterTrainingRuntime of this name") {
				return fmt.Sprint(err)
			}
			return ""
		})
	})
}

// change updates an object, again if somebody else was faster.
func (s *scene) change(object client.Object, change func()) {
	s.Helper()
	s.await("updating "+object.GetName(), func() string {
		s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(object), object))
		change()
		if err := kube.Update(s.ctx, object); apierrors.IsConflict(err) {
			return err.Error()
		} else {
			s.must(err)
		}
		return ""
	})
}

// startWithWebhooks runs what an overlay with webhooks deploys. This machine has no network of Services and no
// kubelet: the Service names this host and the process's port, and files of the Secret are brought to the
// process here.
func (s *scene) startWithWebhooks(overlay string, replaced ...string) *process {
	s.Helper()
	port, certDir := freePorts(s.T, 1)[0], s.TempDir()
	d := s.deploy(overlay, func(object *unstructured.Unstructured) {
		switch object.GetKind() {
		case "Service":
			s.must(unstructured.SetNestedMap(object.Object, map[string]any{"type": "ExternalName", "externalName": "localhost"}, "spec"))
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
			s.must(err)
			for _, webhook := range webhooks {
				s.must(unstructured.SetNestedField(webhook.(map[string]any), int64(port), "clientConfig", "service", "port"))
			}
			s.must(unstructured.SetNestedSlice(object.Object, webhooks, "webhooks"))
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	mounted := make(chan struct{})
	go func() {
		defer close(mounted)
		wait.UntilWithContext(ctx, func(ctx context.Context) { mountSecret(ctx, certDir) }, 50*time.Millisecond)
	}()
	s.Cleanup(func() {
		cancel()
		<-mounted
	})
	return d.start(append(replaced,
		fmt.Sprintf("--trainer-webhooks-bind-address=127.0.0.1:%d", port),
		"--trainer-webhooks-cert-dir="+certDir,
		"--trainer-status-cert-dir="+certDir,
	)...)
}

// mountSecret brings the webhooks' Secret into a directory as a kubelet does: a file appears whole or not at
// all.
func mountSecret(ctx context.Context, dir string) {
	secret := &corev1.Secret{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: musterNamespace, Name: "muster-webhooks-cert"}, secret); err != nil {
		return
	}
	// The certificate comes last: the process waits for it.
	for _, name := range []string{"ca.crt", "tls.key", "tls.crt"} {
		content, ok := secret.Data[name]
		if old, err := os.ReadFile(filepath.Join(dir, name)); !ok || err == nil && string(old) == string(content) {
			continue
		}
		partial := filepath.Join(dir, "."+name)
		if os.WriteFile(partial, content, 0o600) == nil {
			_ = os.Rename(partial, filepath.Join(dir, name))
		}
	}
}

// warnings collects what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	seen []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
