package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// A gang scheduler may be installed after Muster: TrainJobs that ask for its groups wait until then, and nothing has to
// be started again.
func TestVolcanoInstalledLater(t *testing.T) {
	s := newScene(t)
	scheduler.Stop()
	s.removeVolcano()
	s.Cleanup(func() { s.must(cluster.InstallCRDs([]*apiextensionsv1.CustomResourceDefinition{volcanoCRD()})) })
	s.restartScheduler()

	job := s.trainJob("llm", "", 2, 8)
	job.Spec.RuntimeRef = s.runtimeOf("volcano", func(spec *trainer.TrainingRuntimeSpec) {
		spec.PodGroupPolicy = &trainer.PodGroupPolicy{PodGroupPolicySource: trainer.PodGroupPolicySource{Volcano: &trainer.VolcanoPodGroupPolicySource{}}}
	})
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJob("llm", trainer.TrainJobBlocked)
	s.must(kube.Get(s.ctx, s.key("llm"), job))
	blocked := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobBlocked).Message
	if !strings.Contains(blocked, "runtime.spec.podGroupPolicy.volcano: the API server does not serve PodGroups of scheduling.volcano.sh/v1beta1: install Volcano") {
		t.Errorf("message: %s", blocked)
	}
	if pods := s.trainPods("llm"); len(pods) != 0 {
		t.Errorf("%d pods without their group", len(pods))
	}

	s.must(cluster.InstallCRDs([]*apiextensionsv1.CustomResourceDefinition{volcanoCRD()}))
	s.awaitTrainPods("llm", 2, false)
	s.await("the TrainJob to go on", func() string {
		s.must(kube.Get(s.ctx, s.key("llm"), job))
		if c := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobBlocked); c != nil {
			return c.Message
		}
		return ""
	})

	// The controller watches the groups now: one that is deleted comes back while the job runs, and goes with it.
	first := s.volcanoGroup()
	s.must(kube.Delete(s.ctx, first))
	s.await("the group to come back", func() string {
		if again := s.volcanoGroup(); again == nil || again.GetUID() == first.GetUID() {
			return "it has not"
		}
		return ""
	})
	for _, pod := range s.trainPods("llm") {
		s.setPhase(pod.Name, corev1.PodSucceeded)
	}
	s.awaitTrainJob("llm", trainer.TrainJobComplete)
	s.await("the group of a finished TrainJob to go", func() string {
		if group := s.volcanoGroup(); group != nil {
			return "it is there"
		}
		return ""
	})
}

// volcanoGroup returns the group of the TrainJob llm, nil if there is none.
func (s *scene) volcanoGroup() *unstructured.Unstructured {
	s.Helper()
	group := &unstructured.Unstructured{}
	group.SetAPIVersion("scheduling.volcano.sh/v1beta1")
	group.SetKind("PodGroup")
	err := kube.Get(s.ctx, s.key("llm"), group)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return group
}

// removeVolcano deletes the CustomResourceDefinition of Volcano's groups, and waits until they are not served.
func (s *scene) removeVolcano() {
	s.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(volcanoCRD().Name)
	s.must(kube.Delete(s.ctx, crd, client.PropagationPolicy("Foreground")))
	s.await("the end of Volcano's groups", func() string {
		groups, err := cluster.Client().Discovery().ServerGroups()
		s.must(err)
		for _, group := range groups.Groups {
			if group.Name == "scheduling.volcano.sh" {
				return fmt.Sprintf("%v is served", group.Versions)
			}
		}
		return ""
	})
}
