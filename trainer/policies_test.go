package trainer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func deepspeed(job *v1alpha1.TrainJob) { job.Spec.RuntimeRef.Name = "deepspeed-distributed-gang" }

func (c *cluster) secrets() map[string]corev1.Secret {
	c.t.Helper()
	list := &corev1.SecretList{}
	if err := c.List(context.Background(), list); err != nil {
		c.t.Fatal(err)
	}
	secrets := map[string]corev1.Secret{}
	for _, secret := range list.Items {
		secrets[secret.Name] = secret
	}
	return secrets
}

func (c *cluster) configMaps() []string {
	c.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := c.List(context.Background(), list); err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, config := range list.Items {
		names = append(names, config.Name)
	}
	return names
}

// Pods never exist before what they mount, and only one pair of keys is ever made.
func TestMPIChildren(t *testing.T) {
	c := newCluster(t, trainJob(deepspeed), readRuntime(t, "deepspeed-distributed-gang"))
	c.mustReconcile()
	order := func(write string) int { return slices.Index(c.writes, write) }
	if secret, hosts, jobSet := order("create Secret"), order("apply ConfigMap"), order("apply JobSet"); secret < 0 || hosts < 0 || jobSet < secret || jobSet < hosts {
		t.Errorf("writes = %v", c.writes)
	}
	first := c.secrets()
	if len(first) != 1 || len(first["llm-mpi-ssh-auth"].Data) != 2 || !slices.Contains(c.configMaps(), "llm-mpi-hostfile") {
		t.Fatalf("secrets %v, config maps %v", slices.Collect(maps.Keys(first)), c.configMaps())
	}
	c.settle()
	for _, suspend := range []bool{true, false} {
		job := c.job()
		c.update(job, func() { job.Spec.Suspend = &suspend })
		c.settle()
	}
	if again := c.secrets()["llm-mpi-ssh-auth"]; string(again.Data["ssh-privatekey"]) != string(first["llm-mpi-ssh-auth"].Data["ssh-privatekey"]) {
		t.Error("the keys changed under the job")
	}
	if groups := c.podGroups(); !slices.Equal(groups, []string{"llm:4"}) {
		t.Errorf("PodGroups = %v", groups)
	}
}

func TestFluxChildren(t *testing.T) {
	runtime := gangRuntime(t)
	runtime.Spec.MLPolicy.MLPolicySource = v1alpha1.MLPolicySource{Flux: &v1alpha1.FluxMLPolicySource{}}
	// Kubeflow Trainer panics without a trainer.
	c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.Trainer = nil }), runtime)
	c.settle()
	if secret, ok := c.secrets()["llm-flux-curve"]; !ok || len(secret.Data["curve.cert"]) == 0 || !slices.Contains(c.configMaps(), "llm-flux-entrypoint") {
		t.Errorf("secrets %v, config maps %v", slices.Collect(maps.Keys(c.secrets())), c.configMaps())
	}
}

// Pods that could not mount their keys are not made, and the event that says why says nothing of the keys.
func TestNoPodsWithoutTheirKeys(t *testing.T) {
	c := newCluster(t, trainJob(deepspeed), readRuntime(t, "deepspeed-distributed-gang"))
	c.fail = func(write string) error {
		if write == "create Secret" {
			return errors.New("quota exceeded")
		}
		return nil
	}
	if _, err := c.reconcile(); err == nil || !strings.Contains(err.Error(), "creating Secret research/llm-mpi-ssh-auth: quota exceeded") {
		t.Errorf("error = %v", err)
	}
	if c.jobSet() != nil {
		t.Error("there is a JobSet")
	}
	if event := c.nextEvent(); !strings.Contains(event, "quota exceeded") || strings.Contains(event, "PRIVATE") {
		t.Errorf("event = %q", event)
	}
}

// The objects of an earlier TrainJob of the name are about to go: they are neither taken nor used.
func TestOthersKeysAreNotUsed(t *testing.T) {
	theirs := metav1.ObjectMeta{Namespace: "research"}
	for name, object := range map[string]client.Object{
		"llm-mpi-ssh-auth": &corev1.Secret{ObjectMeta: theirs, Data: map[string][]byte{"ssh-privatekey": []byte("theirs")}},
		"llm-mpi-hostfile": &corev1.ConfigMap{ObjectMeta: theirs},
	} {
		t.Run(name, func(t *testing.T) {
			object.SetName(name)
			c := newCluster(t, trainJob(deepspeed), readRuntime(t, "deepspeed-distributed-gang"), object)
			if _, err := c.reconcile(); err == nil || !strings.Contains(err.Error(), name+" exists and does not belong to this TrainJob") {
				t.Errorf("error = %v", err)
			}
			if c.jobSet() != nil {
				t.Error("there is a JobSet")
			}
		})
	}
}

// What no policy could carry out fails the TrainJob with the field.
func TestPoliciesRefuse(t *testing.T) {
	withPolicy := func(source v1alpha1.MLPolicySource) func(*v1alpha1.ClusterTrainingRuntime) {
		return func(r *v1alpha1.ClusterTrainingRuntime) { r.Spec.MLPolicy.MLPolicySource = source }
	}
	withEnv := func(name string) func(*v1alpha1.TrainJob) {
		return func(j *v1alpha1.TrainJob) { j.Spec.Trainer.Env = []corev1.EnvVar{{Name: name}} }
	}
	cases := map[string]struct {
		job     func(*v1alpha1.TrainJob)
		runtime func(*v1alpha1.ClusterTrainingRuntime)
		message string
	}{
		"JAX":       {withEnv("JAX_PROCESS_ID"), withPolicy(v1alpha1.MLPolicySource{JAX: &v1alpha1.JAXMLPolicySource{}}), "spec.trainer.env[0].name: "},
		"XGBoost":   {withEnv("DMLC_TASK_ID"), withPolicy(v1alpha1.MLPolicySource{XGBoost: &v1alpha1.XGBoostMLPolicySource{}}), "spec.trainer.env[0].name: "},
		"Flux":      {nil, withPolicy(v1alpha1.MLPolicySource{Flux: &v1alpha1.FluxMLPolicySource{NumProcPerNode: ptr.To[int32](0)}}), "ClusterTrainingRuntime torch-distributed-gang: spec.mlPolicy.flux.numProcPerNode: "},
		"MPI":       {nil, withPolicy(v1alpha1.MLPolicySource{MPI: &v1alpha1.MPIMLPolicySource{NumProcPerNode: ptr.To[int32](0)}}), "ClusterTrainingRuntime torch-distributed-gang: spec.mlPolicy.mpi.numProcPerNode: "},
		"TorchTune": {func(j *v1alpha1.TrainJob) { j.Spec.Trainer.Command = []string{"tune", "run"} }, nil, "spec.runtimeRef.name: "},
		"more pods than can be counted": {nil, func(r *v1alpha1.ClusterTrainingRuntime) {
			other := r.Spec.Template.Spec.ReplicatedJobs[0].DeepCopy()
			other.Name, other.Replicas, other.Template.Labels = "other", 1<<20, nil
			other.Template.Spec.Parallelism = ptr.To[int32](1 << 20)
			r.Spec.Template.Spec.ReplicatedJobs = append(r.Spec.Template.Spec.ReplicatedJobs, *other)
		}, "ClusterTrainingRuntime torch-distributed-gang: spec.template.spec.replicatedJobs: Too many"},
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
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", tc.message)
			if c.jobSet() != nil || len(c.secrets()) != 0 {
				t.Error("a refused TrainJob has children")
			}
		})
	}
}
