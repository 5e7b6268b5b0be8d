package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestNodesAreCounted(t *testing.T) {
	five := &v1alpha1.Trainer{NumNodes: ptr.To[int32](5)}
	torch := &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2), MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}}
	cases := map[string]struct {
		trainer  *v1alpha1.Trainer
		policy   *v1alpha1.MLPolicy
		ancestor string
		want     int32
	}{
		"the TrainJob's number":           {five, numNodes(2), "trainer", 5},
		"the TrainJob's, for a framework": {five, torch, "trainer", 5},
		"the runtime's number":            {&v1alpha1.Trainer{}, numNodes(2), "trainer", 2},
		"no trainer":                      {nil, numNodes(2), "trainer", 2},
		"no policy":                       {five, nil, "trainer", 5},
		"no trainer in the runtime":       {five, nil, "", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := runtimeOf(job("node", tc.ancestor, "node"))
			spec.MLPolicy = tc.policy
			info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: tc.trainer}}, spec)
			if got := info.PodSets[0].Count; got != tc.want {
				t.Errorf("count = %d, want %d", got, tc.want)
			}
		})
	}
}

// mpiRuntime has the jobs of an MPI runtime; spec.trainer configures the one with the ancestor.
func mpiRuntime(ancestor string, launcherTrains bool, numNodes *int32) *v1alpha1.TrainingRuntimeSpec {
	labels := map[string]string{ancestor: "trainer"}
	spec := runtimeOf(job("node", labels["node"], "node", "sidecar"), job("launcher", labels["launcher"], "node"))
	spec.MLPolicy = &v1alpha1.MLPolicy{NumNodes: numNodes, MLPolicySource: v1alpha1.MLPolicySource{
		MPI: &v1alpha1.MPIMLPolicySource{RunLauncherAsNode: &launcherTrains},
	}}
	return spec
}

func TestMPINodesAreCounted(t *testing.T) {
	n := ptr.To[int32]
	cases := map[string]struct {
		ancestor        string
		launcherTrains  bool
		trainer, policy *int32
		parallelism     *int32
		workers         int32
	}{
		"all nodes are workers":                           {"launcher", false, n(4), n(1), nil, 4},
		"the launcher is a node":                          {"launcher", true, n(4), n(1), nil, 3},
		"the launcher is the only node":                   {"launcher", true, n(1), n(1), nil, 0},
		"one worker":                                      {"launcher", false, n(1), n(1), nil, 1},
		"the runtime's number":                            {"launcher", false, nil, n(4), nil, 4},
		"the runtime's number with the launcher":          {"launcher", true, nil, n(4), nil, 3},
		"the runtime's one":                               {"launcher", true, nil, n(1), nil, 0},
		"no number":                                       {"launcher", false, nil, nil, nil, 1},
		"the template's number":                           {"launcher", true, nil, n(1), n(6), 6},
		"the TrainJob's before the template's":            {"launcher", true, n(3), n(1), n(6), 2},
		"workers that the trainer configures":             {"node", false, n(4), n(1), nil, 4},
		"such workers and a launcher that trains":         {"node", true, n(4), n(1), nil, 3},
		"such workers, the runtime's number":              {"node", false, nil, n(4), nil, 4},
		"such workers, before the template's number":      {"node", false, nil, n(4), n(6), 4},
		"such workers, and a launcher, by runtime's word": {"node", true, nil, n(4), nil, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := mpiRuntime(tc.ancestor, tc.launcherTrains, tc.policy)
			spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = tc.parallelism
			info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{NumNodes: tc.trainer}}}, spec)
			if workers, launchers := info.ByName("node").Count, info.ByName("launcher").Count; workers != tc.workers || launchers != 1 {
				t.Errorf("%d workers and %d launchers, want %d and 1", workers, launchers, tc.workers)
			}
		})
	}
	t.Run("a runtime without a launcher", func(t *testing.T) {
		spec := mpiRuntime("node", true, n(3))
		spec.Template.Spec.ReplicatedJobs = spec.Template.Spec.ReplicatedJobs[:1]
		if got := newInfo(t, &v1alpha1.TrainJob{}, spec).PodSets[0].Count; got != 3 {
			t.Errorf("%d workers, want 3", got)
		}
	})
	t.Run("a runtime without workers", func(t *testing.T) {
		spec := mpiRuntime("launcher", true, n(1))
		spec.Template.Spec.ReplicatedJobs = spec.Template.Spec.ReplicatedJobs[1:]
		if got := newInfo(t, &v1alpha1.TrainJob{}, spec).PodSets[0].Count; got != 1 {
			t.Errorf("%d launchers, want 1", got)
		}
	})
}

// The nodes of an MPI job are as many as the TrainJob says, wherever they are.
func TestMPINodesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		launcherTrains, nodes := rapid.Bool().Draw(t, "launcherTrains"), rapid.Int32Range(1, 1000).Draw(t, "nodes")
		spec := mpiRuntime(rapid.SampledFrom([]string{"launcher", "node"}).Draw(t, "ancestor"), launcherTrains, ptr.To(rapid.Int32Range(1, 9).Draw(t, "runtime's")))
		info, err := New(&v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{NumNodes: &nodes}}}, spec)
		if err != nil {
			t.Fatal(err)
		}
		got := info.ByName("node").Count
		if launcherTrains {
			got += info.ByName("launcher").Count
		}
		if got != nodes {
			t.Fatalf("%d nodes, want %d", got, nodes)
		}
	})
}

func TestTrainerIsApplied(t *testing.T) {
	trainer := &v1alpha1.Trainer{
		Image: ptr.To("train:1"), Command: []string{"mpirun"}, Args: []string{"train"}, Env: []corev1.EnvVar{{Name: "A"}},
		ResourcesPerNode: &corev1.ResourceRequirements{Limits: resourceList("nvidia.com/gpu", "8")},
	}
	type container struct {
		Image         string
		Command, Args []string
		GPUs          int64
	}
	runtimes := container{"runtime", []string{"run"}, []string{"it"}, 0}
	all := container{"train:1", []string{"mpirun"}, []string{"train"}, 8}
	trains := container{"train:1", []string{"run"}, []string{"it"}, 8}
	cases := map[string]struct {
		spec           *v1alpha1.TrainingRuntimeSpec
		launcher, node container
	}{
		"launcher":                         {mpiRuntime("launcher", false, nil), all, trains},
		"launcher that trains":             {mpiRuntime("launcher", true, nil), all, trains},
		"workers":                          {mpiRuntime("node", false, nil), runtimes, all},
		"workers and launcher that trains": {mpiRuntime("node", true, nil), trains, all},
		"not MPI":                          {runtimeOf(job("node", "", "node", "sidecar"), job("launcher", "trainer", "node")), all, runtimes},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range tc.spec.Template.Spec.ReplicatedJobs {
				for c := range tc.spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.Containers {
					container := &tc.spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.Containers[c]
					container.Image, container.Command, container.Args = "runtime", []string{"run"}, []string{"it"}
				}
			}
			info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: trainer}}, tc.spec)
			for c, want := range map[*corev1.Container]container{
				info.ByName("launcher").Container("node"): tc.launcher,
				info.ByName("node").Container("node"):     tc.node,
				info.ByName("node").Container("sidecar"):  runtimes,
			} {
				gpus := c.Resources.Limits["nvidia.com/gpu"]
				got := container{c.Image, c.Command, c.Args, gpus.Value()}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("container (-want +got)\n%s", diff)
				}
				if len(c.Env) != 0 {
					t.Errorf("env = %v: the plugins decide on its order", c.Env)
				}
			}
		})
	}
	t.Run("aliases nothing", func(t *testing.T) {
		info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: trainer}}, mpiRuntime("launcher", true, nil))
		node := info.Trainer().Container("node")
		node.Command[0], node.Args[0] = "changed", "changed"
		if trainer.Command[0] != "mpirun" || trainer.Args[0] != "train" {
			t.Errorf("the TrainJob changed: %v %v", trainer.Command, trainer.Args)
		}
	})
	t.Run("nothing set", func(t *testing.T) {
		spec := runtimeOf(job("node", "trainer", "node"))
		spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Args = []string{"stay"}
		info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{}}}, spec)
		if node := info.Trainer().Container("node"); len(node.Args) != 1 || node.Image != "" {
			t.Errorf("container = %+v", node)
		}
	})
	t.Run("no container named node", func(t *testing.T) {
		newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: trainer}}, runtimeOf(job("node", "trainer", "main")))
	})
}

func TestLauncherTrains(t *testing.T) {
	for _, want := range []bool{false, true} {
		if got := newInfo(t, &v1alpha1.TrainJob{}, mpiRuntime("launcher", want, nil)).LauncherTrains(); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	spec := mpiRuntime("node", true, nil)
	spec.Template.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{job("node", "trainer", "node")}
	if newInfo(t, &v1alpha1.TrainJob{}, spec).LauncherTrains() {
		t.Error("a launcher that is not there trains")
	}
}
