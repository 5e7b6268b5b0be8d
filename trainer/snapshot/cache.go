package snapshot

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// NewCache adds a cache of snapshots, and of no other ConfigMaps, to a manager. It is apart from the manager's
// own cache because that one would lack all other ConfigMaps for everybody.
func NewCache(mgr ctrl.Manager) (cache.Cache, error) {
	snapshots, err := cluster.New(mgr.GetConfig(), func(options *cluster.Options) {
		options.Scheme = mgr.GetScheme()
		options.HTTPClient = mgr.GetHTTPClient()
		options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
		options.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Label:     labels.SelectorFromSet(labels.Set{Label: "true"}),
			Transform: newTexts().share,
		}}
	})
	if err != nil {
		return nil, err
	}
	return snapshots.GetCache(), mgr.Add(snapshots)
}

// sharedTexts is how many runtimes are known at a time, of which many TrainJobs have the same snapshot.
const sharedTexts = 256

// texts has equal snapshots share their text: thousands of TrainJobs may use one runtime.
type texts struct {
	known *lru.Cache
}

func newTexts() *texts {
	return &texts{known: lru.New(sharedTexts)}
}

// share is a cache transform. It also takes away the managed fields.
func (t *texts) share(in any) (any, error) {
	configMap, ok := in.(*corev1.ConfigMap)
	if !ok {
		// A deletion that the informer missed comes as a marker.
		return in, nil
	}
	configMap.ManagedFields = nil
	for key, text := range configMap.Data {
		known, ok := t.known.Get(text)
		if !ok {
			t.known.Add(text, text)
			continue
		}
		configMap.Data[key] = known.(string)
	}
	return in, nil
}
