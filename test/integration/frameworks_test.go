package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// example reads one of the TrainJobs that users start from.
func (s *scene) example(name string) *trainer.TrainJob {
	s.Helper()
	content, err := os.ReadFile(filepath.Join("../../examples/trainjobs", name+".yaml"))
	s.must(err)
	job := &trainer.TrainJob{}
	s.must(yaml.UnmarshalStrict(content, job))
	job.Namespace = s.namespace
	return job
}

// env returns the environment of a pod's container, where a variable that a field of the pod supplies has the
// path of the field as its value.
func env(pod *corev1.Pod, container string) map[string]string {
	variables := map[string]string{}
	for _, c := range pod.Spec.Containers {
		if c.Name != container {
			continue
		}
		for _, variable := range c.Env {
			variables[variable.Name] = variable.Value
			if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
				variables[variable.Name] = variable.ValueFrom.FieldRef.FieldPath
			}
		}
	}
	// JobSet's own.
	for name := range variables {
		if strings.HasPrefix(name, "JOB_COMPLETION_INDEX") || strings.HasPrefix(name, "JOBSET_") {
			delete(variables, name)
		}
	}
	return variables
}

func replicatedJobOf(pod corev1.Pod) string {
	return pod.Labels[jobset.ReplicatedJobNameKey]
}

// Every example starts whole, with what its framework needs in every pod, and completes.
func TestExamplesComplete(t *testing.T) {
	const index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
	openMPI := map[string]string{
		"NCCL_DEBUG":                     "WARN",
		"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
		"OMPI_MCA_orte_set_default_slots": "2", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
		"PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile", "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
		"PRTE_MCA_prte_set_default_slots": "2", "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
	}
	cases := map[string]struct {
		// By replicated job.
		pods map[string]int
		env  map[string]map[string]string
		// Ends the training; the other pods are stopped then.
		ends string
	}{
		"torch": {
			pods: map[string]int{"node": 3},
			env: map[string]map[string]string{"node": {
				"NCCL_DEBUG": "WARN", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": index,
				"PET_MASTER_ADDR": "torch-hello-node-0-0.torch-hello", "PET_MASTER_PORT": "29500",
			}},
			ends: "node",
		},
		"mpi": {
			pods: map[string]int{"launcher": 1, "node": 1},
			env:  map[string]map[string]string{"launcher": openMPI, "node": {"NCCL_DEBUG": "WARN"}},
			ends: "launcher",
		},
		"jax": {
			pods: map[string]int{"node": 2},
			env: map[string]map[string]string{"node": {
				"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": index, "JAX_COORDINATOR_ADDRESS": "jax-hello-node-0-0.jax-hello:29500",
			}},
			ends: "node",
		},
		"xgboost": {
			pods: map[string]int{"node": 2},
			env: map[string]map[string]string{"node": {
				"DMLC_TRACKER_URI": "xgboost-hello-node-0-0.xgboost-hello", "DMLC_TRACKER_PORT": "29500", "DMLC_TASK_ID": index, "DMLC_NUM_WORKER": "2",
			}},
			ends: "node",
		},
	}
	files, err := filepath.Glob("../../examples/trainjobs/*.yaml")
	if err != nil || len(files) != len(cases) {
		t.Fatalf("%d examples, %d cases, error %v", len(files), len(cases), err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.runtimes()
			s.nodes(3, controlplane.NodeShape{})
			job := s.example(name)
			s.must(kube.Create(s.ctx, job))
			total := 0
			for _, n := range tc.pods {
				total += n
			}
			s.awaitTrainPods(job.Name, total, true)

			pods, got := s.trainPods(job.Name), map[string]int{}
			for i := range pods {
				replicated := replicatedJobOf(pods[i])
				got[replicated]++
				if diff := cmp.Diff(tc.env[replicated], env(&pods[i], "node")); diff != "" {
					t.Errorf("env of %s (-want +got)\n%s", pods[i].Name, diff)
				}
			}
			if diff := cmp.Diff(tc.pods, got); diff != "" {
				t.Errorf("pods (-want +got)\n%s", diff)
			}
			for _, pod := range pods {
				if replicatedJobOf(pod) == tc.ends {
					s.finish(pod.Name)
				}
			}
			s.awaitTrainJob(job.Name, trainer.TrainJobComplete)
		})
	}
}

// sshAuth returns the Secret of an MPI job.
func (s *scene) sshAuth(job string) *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{}
	s.must(kube.Get(s.ctx, s.key(job+"-mpi-ssh-auth"), secret))
	return secret
}

func (s *scene) hostfile(job string) string {
	s.Helper()
	config := &corev1.ConfigMap{}
	s.must(kube.Get(s.ctx, s.key(job+"-mpi-hostfile"), config))
	return config.Data["hostfile"]
}

// The API server takes what mpirun needs, pods can mount it, and nothing of it changes when a job is suspended
// and resumed.
func TestMPIKeysAndHostfile(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(3, controlplane.NodeShape{})
	job := s.trainJob("sim", "mlx-distributed-gang", 3, 8)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainPods("sim", 3, true)

	first := s.sshAuth("sim")
	if first.Type != corev1.SecretTypeSSHAuth || !ptr.Deref(first.Immutable, false) {
		t.Errorf("type %s, immutable %v", first.Type, first.Immutable)
	}
	if !strings.Contains(string(first.Data["ssh-privatekey"]), "EC PRIVATE KEY") || !strings.HasPrefix(string(first.Data["ssh-publickey"]), "ecdsa-sha2-nistp521 ") {
		t.Error("the keys have another form")
	}
	hosts := "sim-node-0-0.sim slots=8\nsim-node-0-1.sim slots=8\nsim-launcher-0-0.sim slots=8\n"
	if got := s.hostfile("sim"); got != hosts {
		t.Errorf("hostfile:\n%s", got)
	}
	for _, pod := range s.trainPods("sim") {
		mounts := map[string]string{}
		for _, volume := range pod.Spec.Volumes {
			if volume.Secret != nil {
				mounts[volume.Name] = volume.Secret.SecretName
			} else if volume.ConfigMap != nil {
				mounts[volume.Name] = volume.ConfigMap.Name
			}
		}
		if mounts["mpi-ssh-auth"] != first.Name || replicatedJobOf(pod) == "launcher" && mounts["mpi-hostfile"] != "sim-mpi-hostfile" {
			t.Errorf("pod %s mounts %v", pod.Name, mounts)
		}
	}

	s.suspend(job, true)
	s.awaitTrainPods("sim", 0, false)
	s.suspend(job, false)
	s.awaitTrainPods("sim", 3, true)
	if again := s.sshAuth("sim"); again.UID != first.UID || again.ResourceVersion != first.ResourceVersion {
		t.Error("the keys changed under the job")
	}
	if got := s.hostfile("sim"); got != hosts {
		t.Errorf("hostfile after resuming:\n%s", got)
	}
	s.noSecretsTold(first)
}

// noSecretsTold checks that no event speaks of a Secret's data. The log is checked by what MUSTER_TEST_LOG
// keeps, where it is set.
func (s *scene) noSecretsTold(secret *corev1.Secret) {
	s.Helper()
	events := &corev1.EventList{}
	s.must(kube.List(s.ctx, events, client.InNamespace(s.namespace)))
	texts := []string{}
	for _, event := range events.Items {
		texts = append(texts, event.Message)
	}
	if file := os.Getenv("MUSTER_TEST_LOG"); file != "" {
		log, err := os.ReadFile(file)
		s.must(err)
		texts = append(texts, string(log))
	}
	for _, key := range secret.Data {
		middle := string(key[len(key)/2 : len(key)/2+20])
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, middle) || strings.Contains(text, "PRIVATE KEY") }) {
			s.Error("a key is told in an event or the log")
		}
	}
}

// phasedRuntime makes a runtime of the namespace as Kubeflow Trainer ships it for DeepSpeed, whose launcher depends
// on the workers, but with a policy.
func (s *scene) phasedRuntime() *trainer.TrainingRuntime {
	s.Helper()
	shipped := &trainer.ClusterTrainingRuntime{}
	s.must(kube.Get(s.ctx, types.NamespacedName{Name: "deepspeed-distributed"}, shipped))
	runtime := &trainer.TrainingRuntime{Spec: shipped.Spec}
	runtime.Name, runtime.Namespace = "phases", s.namespace
	runtime.Spec.PodGroupPolicy = &trainer.PodGroupPolicy{PodGroupPolicySource: trainer.PodGroupPolicySource{Coscheduling: &trainer.CoschedulingPodGroupPolicySource{}}}
	s.must(kube.Create(s.ctx, runtime))
	return runtime
}

// A job of one node is one pod: the launcher is the node, and there is nobody to wait for.
func TestMPIOnOneNode(t *testing.T) {
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		t.Run(kind, func(t *testing.T) {
			s := newScene(t)
			s.runtimes()
			s.nodes(1, controlplane.NodeShape{})
			job := s.trainJob("solo", "deepspeed-distributed-gang", 1, 8)
			if kind == trainer.TrainingRuntimeKind {
				job.Spec.RuntimeRef = trainer.RuntimeRef{Name: s.phasedRuntime().Name, Kind: &kind}
			}
			s.must(kube.Create(s.ctx, job))
			s.awaitTrainPods("solo", 1, true)
			pods := s.trainPods("solo")
			if replicatedJobOf(pods[0]) != "launcher" {
				t.Errorf("the pod is %s", pods[0].Name)
			}
			if got := s.hostfile("solo"); got != "solo-launcher-0-0.solo slots=8\n" {
				t.Errorf("hostfile:\n%s", got)
			}
			s.finish(pods[0].Name)
			s.awaitTrainJob("solo", trainer.TrainJobComplete)
		})
	}
}

// A launcher that depends on its workers is a gang after theirs.
func TestMPIInPhases(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(2, controlplane.NodeShape{})
	job := s.trainJob("phased", "", 2, 8)
	job.Spec.RuntimeRef = trainer.RuntimeRef{Name: s.phasedRuntime().Name, Kind: ptr.To(trainer.TrainingRuntimeKind)}
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainPods("phased", 2, true)
	for _, pod := range s.trainPods("phased") {
		if replicatedJobOf(pod) == "launcher" {
			s.finish(pod.Name)
		}
	}
	s.awaitTrainJob("phased", trainer.TrainJobComplete)
}

// What mpirun could never do is told at once, by the field.
func TestMPIRefusals(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	job := s.trainJob("huge", "deepspeed-distributed", 100000, 1)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJob("huge", trainer.TrainJobFailed)
	s.must(kube.Get(s.ctx, s.key("huge"), job))
	failed := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobFailed)
	if !strings.Contains(failed.Message, "spec.trainer.numNodes") || !strings.Contains(failed.Message, "hostfile") {
		t.Errorf("message: %s", failed.Message)
	}
}
