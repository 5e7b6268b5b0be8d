package gang

import (
	"strings"

	"github.com/muster-sched/muster/trainer/runtime"
)

// topologyPrefixes begin the annotations by which a gang asks for places that are near each other: Muster's
// own, and Kueue's.
var topologyPrefixes = []string{"muster.dev/", "kueue.x-k8s.io/podset-"}

// Annotations returns the annotations of a gang's group object: what the runtime's template asks of the
// network topology. It is the training that needs near places; the gang that fetches its data takes any.
func (g *Gang) Annotations(info *runtime.Info) map[string]string {
	if g.initializes() {
		return nil
	}
	var annotations map[string]string
	for key, value := range info.Annotations {
		for _, prefix := range topologyPrefixes {
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[key] = value
		}
	}
	return annotations
}
