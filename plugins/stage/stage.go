// Package stage holds what the tests of the scheduler plugins share: the in-tree framework over a
// fixed snapshot, and the nodes and pods to put into it.
package stage

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	schedqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedmetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// GPU is the resource that test nodes and pods have.
const GPU = "nvidia.com/gpu"

// NewFramework returns the in-tree framework, without a queue that runs, over a snapshot of the nodes
// and of the pods on them, and the snapshot's nodes.
func NewFramework(t testing.TB, pods []*corev1.Pod, nodes ...*corev1.Node) (framework.Framework, []fwk.NodeInfo) {
	t.Helper()
	return newFramework(t, Profile(), nil, schedcache.NewSnapshot(pods, nodes))
}

// NewFrameworkWith is NewFramework with objects in the API server, which the plugins for volumes and
// devices know too. Pods among the objects wait in the scheduler's queue. It also returns the API server's client, a
// fake that keeps what was asked of it.
func NewFrameworkWith(t testing.TB, objects []runtime.Object, pods []*corev1.Pod, nodes ...*corev1.Node) (framework.Framework, []fwk.NodeInfo, *clientsetfake.Clientset) {
	t.Helper()
	client := clientsetfake.NewClientset(objects...)
	profile := Profile(names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone, names.DynamicResources)
	fw, infos := newFramework(t, profile, client, schedcache.NewSnapshot(pods, nodes))
	return fw, infos, client
}

// NewFrameworkIgnoring is NewFramework with NodeResourcesFit configured to ignore extended resources and
// groups of them.
func NewFrameworkIgnoring(t testing.TB, resources, groups []string, nodes ...*corev1.Node) (framework.Framework, []fwk.NodeInfo) {
	t.Helper()
	profile := Profile()
	for i, c := range profile.PluginConfig {
		if args, ok := c.Args.(*schedconfig.NodeResourcesFitArgs); ok {
			args = args.DeepCopy()
			args.IgnoredResources, args.IgnoredResourceGroups = resources, groups
			profile.PluginConfig[i].Args = args
		}
	}
	return newFramework(t, profile, nil, schedcache.NewSnapshot(nil, nodes))
}

// Profile is the configuration of the framework: the default arguments of the in-tree plugins that
// need no objects besides nodes and pods, and of those named.
func Profile(more ...string) *schedconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	if err != nil {
		panic(err) // the defaults are built in
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: "test", Plugins: &schedconfig.Plugins{}, PluginConfig: defaults.Profiles[0].PluginConfig}
	for _, name := range append([]string{
		names.PrioritySort, names.DefaultBinder, names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity,
		names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity,
	}, more...) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name})
	}
	return profile
}

func newFramework(t testing.TB, profile *schedconfig.KubeSchedulerProfile, client *clientsetfake.Clientset, snapshot *schedcache.Snapshot) (framework.Framework, []fwk.NodeInfo) {
	t.Helper()
	schedmetrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	withObjects := client != nil
	if !withObjects {
		client = clientsetfake.NewClientset()
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	options := []frameworkruntime.Option{
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
	}
	synced := []cache.InformerSynced{}
	less := func(a, b fwk.QueuedEntityInfo) bool { return false }
	queue := schedqueue.NewTestQueue(ctx, less)
	if withObjects {
		queue = schedqueue.NewTestQueueWithInformerFactory(ctx, less, factory)
		pods, err := factory.Core().V1().Pods().Lister().List(labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			queue.Add(ctx, pod) // which notes its nomination
		}
		slices, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
			SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client, EnableConsumableCapacity: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		claims := assumecache.NewAssumeCache(klog.FromContext(ctx), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
		// The plugins must have seen the objects before a test asks them.
		synced = append(synced, slices.HasSynced, claims.AddEventHandler(cache.ResourceEventHandlerFuncs{}).HasSynced)
		manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
		classes, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(manager.DeviceClassResolver().(cache.ResourceEventHandler))
		if err != nil {
			t.Fatal(err)
		}
		synced = append(synced, classes.HasSynced)
		options = append(options,
			frameworkruntime.WithSharedDRAManager(manager),
			frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		)
	}
	options = append(options, frameworkruntime.WithPodNominator(queue))
	fw, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile, options...)
	if err != nil {
		t.Fatal(err)
	}
	if withObjects {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		cache.WaitForCacheSync(ctx.Done(), synced...)
		t.Cleanup(factory.Shutdown)
		t.Cleanup(cancel)
	}
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	return fw, infos
}

// UID is the UID of the test pod of that number.
func UID(i int) types.UID { return types.UID(fmt.Sprintf("uid-%d", i)) }

// Node is a node with room for anything but GPUs, of which it has so many.
func Node(name string, gpus int) *st.NodeWrapper {
	return st.MakeNode().Name(name).Label("kubernetes.io/hostname", name).Capacity(map[corev1.ResourceName]string{
		"cpu": "100", "memory": "100Gi", "pods": "110", GPU: fmt.Sprint(gpus),
	})
}

// Pod is the pod of that number, which requests so many GPUs.
func Pod(i, gpus int) *st.PodWrapper {
	return st.MakePod().Namespace("ns").Name(fmt.Sprintf("m-%d", i)).UID(string(UID(i))).Label("app", "train").
		Req(map[corev1.ResourceName]string{GPU: fmt.Sprint(gpus)})
}

// Pods are the pods 0 to n-1, changed if change is not nil.
func Pods(n, gpus int, change func(*st.PodWrapper) *st.PodWrapper) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		p := Pod(i, gpus)
		if change != nil {
			p = change(p)
		}
		pods = append(pods, p.Obj())
	}
	return pods
}

// Nodes are the nodes "n0" to n-1.
func Nodes(n, gpus int) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range n {
		nodes = append(nodes, Node(fmt.Sprintf("n%d", i), gpus).Obj())
	}
	return nodes
}

// Snapshot is a snapshot of these nodes and the pods on them.
func Snapshot(t testing.TB, infos []fwk.NodeInfo) fwk.MutableSnapshotSharedLister {
	t.Helper()
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for _, info := range infos {
		nodes = append(nodes, info.Node())
		for _, pod := range info.GetPods() {
			pods = append(pods, pod.GetPod())
		}
	}
	return schedcache.NewSnapshot(pods, nodes)
}
