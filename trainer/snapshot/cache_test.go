package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Snapshots of one runtime are held once, those of others as they are, and not without bound.
func TestSnapshotsShareTheirText(t *testing.T) {
	texts := newTexts()
	keep := func(text string) string {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "trainer"}}},
			Data:       map[string]string{dataKey: strings.Clone(text)},
		}
		kept, err := texts.share(configMap)
		if err != nil || kept != any(configMap) || configMap.ManagedFields != nil || configMap.Data[dataKey] != text {
			t.Fatalf("kept %v, error %v", kept, err)
		}
		return configMap.Data[dataKey]
	}
	first := keep("a runtime")
	if again := keep("a runtime"); unsafe.StringData(again) != unsafe.StringData(first) {
		t.Error("the same text is held twice")
	}
	for i := range 2 * sharedTexts {
		keep(fmt.Sprintf("runtime %d", i))
	}
	if texts.known.Len() != sharedTexts {
		t.Errorf("%d texts are known", texts.known.Len())
	}
	marker := cache.DeletedFinalStateUnknown{Key: "research/llm"}
	if got, err := texts.share(marker); err != nil || got != any(marker) {
		t.Errorf("marker: %v, %v", got, err)
	}
}
