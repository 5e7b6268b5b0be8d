package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestConfigured(t *testing.T) {
	torch := &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}}
	cases := map[string]struct {
		jobs     []string // name, ancestor and container of each
		policy   *v1alpha1.MLPolicy
		ancestor string
		want     string
	}{
		"by label":                             {[]string{"node", "", "node", "train", "trainer", "node"}, nil, "trainer", "train"},
		"by name":                              {[]string{"server", "", "node", "node", "", "node"}, nil, "trainer", "node"},
		"by name, nodes counted by the policy": {[]string{"node", "", "node"}, numNodes(2), "trainer", "node"},
		"by name, for a framework":             {[]string{"node", "", "node"}, torch, "trainer", ""},
		"by label, for a framework":            {[]string{"node", "trainer", "node"}, torch, "trainer", "node"},
		"by name, but something else":          {[]string{"node", "worker", "node"}, nil, "trainer", ""},
		"by name, but without the container":   {[]string{"node", "", "main"}, nil, "trainer", ""},
		"an initializer by label":              {[]string{"data", "dataset-initializer", "main"}, nil, "dataset-initializer", "data"},
		"an initializer by name":               {[]string{"model-initializer", "", "model-initializer"}, nil, "model-initializer", "model-initializer"},
		"an initializer for a framework":       {[]string{"model-initializer", "", "model-initializer"}, torch, "model-initializer", "model-initializer"},
		"an initializer of the other kind":     {[]string{"model-initializer", "", "model-initializer"}, nil, "dataset-initializer", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := runtimeOf()
			for i := 0; i < len(tc.jobs); i += 3 {
				spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, job(tc.jobs[i], tc.jobs[i+1], tc.jobs[i+2]))
			}
			spec.MLPolicy = tc.policy
			got := ""
			if podSet := newInfo(t, &v1alpha1.TrainJob{}, spec).Configured(tc.ancestor); podSet != nil {
				got = podSet.Job.Name
			}
			if got != tc.want {
				t.Errorf("configures %q, want %q", got, tc.want)
			}
		})
	}
}

// Kueue counts the pods of jobs without a label as the template has them, so nothing else may.
func TestJobsKnownByNameAreNotCounted(t *testing.T) {
	spec := runtimeOf(job("node", "", "node"))
	spec.MLPolicy = numNodes(4)
	info := newInfo(t, &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{
		Image: ptr.To("mine"), Command: []string{"train"}, Args: []string{"fast"}, NumNodes: ptr.To[int32](8),
	}}}, spec)
	if got := info.PodSets[0].Count; got != 1 {
		t.Errorf("count = %d, want the template's", got)
	}
	node := info.PodSets[0].Container("node")
	want := corev1.Container{Name: "node", Image: "mine", Command: []string{"train"}, Args: []string{"fast"}}
	if node.Image != want.Image || len(node.Command) != 1 || len(node.Args) != 1 {
		t.Errorf("container = %+v, want %+v", node, want)
	}
}
