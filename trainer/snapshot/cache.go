package snapshot

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
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
			Transform: cache.TransformStripManagedFields(),
		}}
	})
	if err != nil {
		return nil, err
	}
	return snapshots.GetCache(), mgr.Add(snapshots)
}
