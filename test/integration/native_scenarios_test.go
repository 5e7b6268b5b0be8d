package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// native expresses gangs by Kubernetes' own PodGroup.
type native struct{}

func (native) name() string { return "native" }

func (native) start(s *scene) {
	s.Helper()
	s.withLevels()
}

func (native) restart(s *scene) {
	s.Helper()
	s.restartWithLevels()
}

func (native) create(s *scene, minMember int, annotations map[string]string) {
	s.Helper()
	s.nativeGroup("gang", int32(minMember), func(g *schedulingv1beta1.PodGroup) { g.Annotations = annotations })
}

func (native) annotate(s *scene, annotations map[string]string) {
	s.Helper()
	s.patchAnnotations(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: s.namespace}}, annotations)
}

func (native) join(pod *corev1.Pod) { inGroup("gang")(pod) }

func (native) refusal(s *scene) string {
	s.Helper()
	return s.nativeRefusal("gang")
}

func TestInNativeModeTopologyScenarios(t *testing.T) {
	newNativeScene(t)
	playScenarios(t, native{})
}
