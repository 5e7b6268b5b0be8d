package gangplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// objectScene is a scene with objects in the API server.
type objectScene struct {
	*scene
	client *clientsetfake.Clientset
}

func newObjectScene(t *testing.T, objects []runtime.Object, pods []*corev1.Pod, nodes ...*corev1.Node) *objectScene {
	t.Helper()
	s := &objectScene{scene: &scene{t: t, cluster: NewCluster(nil)}}
	s.fw, s.nodes, s.client = stage.NewFrameworkWith(t, objects, pods, nodes...)
	s.cluster.Use(s.fw)
	s.cluster.Sync(s.nodes)
	return s
}

// untouched fails if planning left anything behind: a pod in the snapshot, an allocation in flight, or
// a request to the API server that is no read.
func (s *objectScene) untouched(pods int, devices int) {
	s.t.Helper()
	got := 0
	for _, info := range s.nodes {
		got += len(info.GetPods())
	}
	if got != pods {
		s.t.Errorf("%d pods in the snapshot, want %d", got, pods)
	}
	if m := s.fw.SharedDRAManager(); m != nil {
		if ids, err := m.ResourceClaims().ListAllAllocatedDevices(); err != nil || ids.Len() != devices {
			s.t.Errorf("devices allocated: %v (%v), want %d", ids.UnsortedList(), err, devices)
		}
	}
	for _, a := range s.client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			s.t.Errorf("the API server was asked to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

const deviceClass = "gpu.example.com"

// devices gives each node a number of devices of one class.
func devices(perNode int, nodes ...*corev1.Node) []runtime.Object {
	objects := []runtime.Object{&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: deviceClass}}}
	for _, n := range nodes {
		slice := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: "gpu.example.com", NodeName: ptr.To(n.Name),
				Pool: resourcev1.ResourcePool{Name: n.Name, ResourceSliceCount: 1},
			},
		}
		for i := range perNode {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
		}
		objects = append(objects, slice)
	}
	return objects
}

func claim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: deviceClass, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	}
}

// allocate gives a claim a device of a node.
func allocate(c *resourcev1.ResourceClaim, node, device string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "device", Driver: "gpu.example.com", Pool: node, Device: device},
		}},
		NodeSelector: st.MakeNodeSelector().In("metadata.name", []string{node}, st.NodeSelectorTypeMatchFields).Obj(),
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

func withClaims(p *corev1.Pod, names ...string) *corev1.Pod {
	for _, name := range names {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To(name)})
	}
	return p
}

func claimants(n int, claims func(i int) []string) []*corev1.Pod {
	pods := stage.Pods(n, 0, nil)
	for i := range pods {
		withClaims(pods[i], claims(i)...)
	}
	return pods
}

func TestMembersSeeEachOthersDevices(t *testing.T) {
	own := func(i int) []string { return []string{fmt.Sprintf("claim-%d", i)} }
	for name, tc := range map[string]struct {
		perNode, nodes int
		claims         []*resourcev1.ResourceClaim
		members        []*corev1.Pod
		allocated      int
		want           []string
		refused        string
	}{
		"one device for each node": {
			perNode: 1, nodes: 3, claims: []*resourcev1.ResourceClaim{claim("claim-0"), claim("claim-1"), claim("claim-2")},
			members: claimants(3, own), want: []string{"n0", "n1", "n2"},
		},
		"two devices for each node": {
			perNode: 2, nodes: 3, claims: []*resourcev1.ResourceClaim{claim("claim-0"), claim("claim-1"), claim("claim-2")},
			members: claimants(3, own), want: []string{"n0", "n0", "n1"},
		},
		"too few devices": {
			perNode: 1, nodes: 2, claims: []*resourcev1.ResourceClaim{claim("claim-0"), claim("claim-1"), claim("claim-2")},
			members: claimants(3, own), refused: "room for 2; of 2 nodes: 2 refused by DynamicResources",
		},
		"a claim that all members share": {
			perNode: 1, nodes: 2, claims: []*resourcev1.ResourceClaim{claim("all")},
			members: claimants(3, func(int) []string { return []string{"all"} }), want: []string{"n0", "n0", "n0"},
		},
		"a shared claim before those of their own": {
			perNode: 4, nodes: 2, claims: []*resourcev1.ResourceClaim{claim("all"), claim("claim-0"), claim("claim-1"), claim("claim-2")},
			members: claimants(3, func(i int) []string { return []string{"all", fmt.Sprintf("claim-%d", i)} }), want: []string{"n0", "n0", "n0"},
		},
		"a shared claim and too few for their own": {
			perNode: 3, nodes: 2, claims: []*resourcev1.ResourceClaim{claim("all"), claim("claim-0"), claim("claim-1"), claim("claim-2")},
			members: claimants(3, func(i int) []string { return []string{"all", fmt.Sprintf("claim-%d", i)} }), refused: "room for 2; ",
		},
		"a claim that has its device draws the members": {
			perNode: 4, nodes: 3, allocated: 1,
			claims: []*resourcev1.ResourceClaim{
				allocate(claim("all"), "n1", "device-0", stage.Pod(0, 0).Obj(), stage.Pod(1, 0).Obj()), claim("claim-0"), claim("claim-1"), claim("claim-2"),
			},
			members: claimants(3, func(i int) []string { return []string{"all", fmt.Sprintf("claim-%d", i)} }), want: []string{"n1", "n1", "n1"},
		},
		"and their own run out there": {
			perNode: 3, nodes: 3, allocated: 1,
			claims: []*resourcev1.ResourceClaim{
				allocate(claim("all"), "n1", "device-0", stage.Pod(0, 0).Obj(), stage.Pod(1, 0).Obj()), claim("claim-0"), claim("claim-1"), claim("claim-2"),
			},
			members: claimants(3, func(i int) []string { return []string{"all", fmt.Sprintf("claim-%d", i)} }),
			refused: "room for 2; of 3 nodes: 2 refused by DynamicResources: resourceclaim not available on the node, 1 refused by DynamicResources",
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := stage.Nodes(tc.nodes, 8)
			objects := devices(tc.perNode, nodes...)
			for _, c := range tc.claims {
				objects = append(objects, c.DeepCopy())
			}
			s := newObjectScene(t, objects, nil, nodes...)
			for range 2 { // the second time shows that the first left nothing
				got, e := s.plan(len(tc.members), tc.members...)
				switch {
				case tc.refused != "" && (e == nil || !strings.Contains(e.String(), tc.refused)):
					t.Errorf("\n got %v %v\nwant %q", got, e, tc.refused)
				case tc.refused == "" && !slices.Equal(got, tc.want):
					t.Errorf("got %v (%v), want %v", got, e, tc.want)
				}
				s.untouched(0, tc.allocated)
			}
		})
	}
}

func TestMembersSeeEachOthersVolumes(t *testing.T) {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	objects := func(volumes, claims int) []runtime.Object {
		out := []runtime.Object{&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &waits,
		}}
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		for i := range volumes {
			out = append(out, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pv-%d", i), ResourceVersion: "1"},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size, StorageClassName: "local", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/"}},
					NodeAffinity:           &corev1.VolumeNodeAffinity{Required: st.MakeNodeSelector().In("kubernetes.io/hostname", []string{fmt.Sprintf("n%d", i)}, st.NodeSelectorTypeMatchExpressions).Obj()},
				},
				Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
			})
		}
		for i := range claims {
			out = append(out, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("data-%d", i), ResourceVersion: "1", UID: stage.UID(2000 + i)},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: ptr.To("local"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: size},
				},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			})
		}
		return out
	}
	members := func(n int) []*corev1.Pod {
		pods := stage.Pods(n, 1, nil)
		for i, p := range pods {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-%d", i)},
			}}}
		}
		return pods
	}
	t.Run("a volume for each node", func(t *testing.T) {
		s := newObjectScene(t, objects(3, 3), nil, stage.Nodes(4, 8)...)
		for range 2 {
			if got, e := s.plan(3, members(3)...); !slices.Equal(got, []string{"n0", "n1", "n2"}) {
				t.Errorf("%v, %v", got, e)
			}
			s.untouched(0, 0)
		}
	})
	t.Run("too few", func(t *testing.T) {
		s := newObjectScene(t, objects(2, 3), nil, stage.Nodes(4, 8)...)
		for range 2 {
			if got, e := s.plan(3, members(3)...); e == nil || !strings.Contains(e.String(), "room for 2; of 4 nodes: 4 refused by VolumeBinding") {
				t.Errorf("%v, %v", got, e)
			}
			s.untouched(0, 0)
		}
	})
	t.Run("a claim in use by a pod that has its place is left alone", func(t *testing.T) {
		user := members(1)[0]
		user.Name, user.UID, user.Spec.NodeName = "user", "user", "n1"
		s := newObjectScene(t, objects(2, 1), []*corev1.Pod{user}, stage.Nodes(2, 8)...)
		if got, e := s.plan(1, members(1)...); e != nil {
			t.Errorf("%v, %v", got, e)
		}
		s.untouched(1, 0)
	})
}

// A launcher that keeps its node to itself is seen by workers that have no rules of their own.
func TestMembersThatOthersKeepAwayFrom(t *testing.T) {
	launcher := stage.Pod(0, 1).PodAntiAffinityExists("worker", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()
	members := []*corev1.Pod{launcher, stage.Pod(1, 1).Label("worker", "").Obj(), stage.Pod(2, 1).Label("worker", "").Obj()}
	s := newScene(t, nil, nil, stage.Nodes(2, 8)...)
	if got, e := s.plan(3, members...); !slices.Equal(got, []string{"n0", "n1", "n1"}) {
		t.Errorf("%v, %v", got, e)
	}
}

// Only a member that comes later in rank order can take the one node that both could use: the kind that
// found no place is placed first.
func TestTheKindThatFailedGoesFirst(t *testing.T) {
	picky := func(p *st.PodWrapper) *st.PodWrapper { return p.NodeSelector(map[string]string{"only": "here"}) }
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(8, "kubernetes.io/hostname", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	members := []*corev1.Pod{spread(stage.Pod(0, 4)).Obj(), spread(picky(stage.Pod(1, 8))).Obj()}
	s := newScene(t, nil, nil, stage.Node("n0", 8).Label("only", "here").Obj(), stage.Node("n1", 4).Obj())
	if got, e := s.plan(2, members...); !slices.Equal(got, []string{"n1", "n0"}) {
		t.Errorf("%v, %v", got, e)
	}
}

func TestExactPlansKeepToTheTopology(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 12 {
		nodes = append(nodes, stage.Node(fmt.Sprintf("n%d", i), 2).Label("rack", fmt.Sprintf("r%d", i/4)).Obj())
	}
	apart := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(1, "kubernetes.io/hostname", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	hermit := st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n1").PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()
	s := newScene(t, []string{"rack"}, []*corev1.Pod{hermit}, nodes...)
	logger, ctx := ktesting.NewTestContext(t)
	rack := planner.Level(1)
	place := func(d *Demand) []string {
		t.Helper()
		plan, e, err := Plan(ctx, s.fw, s.cluster, d, nil)
		if err != nil || e != nil {
			t.Fatal(e, err)
		}
		var racks []string
		for _, n := range plan.Nodes {
			racks = append(racks, nodes[slices.IndexFunc(nodes, func(x *corev1.Node) bool { return x.Name == s.cluster.NodeName(n) })].Labels["rack"])
		}
		return racks
	}
	demand := func(n int, placed ...Placed) *Demand {
		d, err := s.cluster.NewDemand(logger, stage.Pods(n, 2, apart), n, placed)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := demand(4)
	d.Required = rack
	if got := place(d); slices.Contains(got, "r0") || got[0] != got[3] {
		t.Errorf("a rack without the hermit holds all four: %v", got)
	}
	d = demand(6)
	d.Sets = []planner.Set{{SliceSize: 3, SliceLevel: rack}}
	for i := range d.Members {
		d.Members[i].Slice = i / 3
	}
	if got := place(d); got[0] != got[2] || got[3] != got[5] {
		t.Errorf("slices of three are each in one rack: %v", got)
	}
	d = demand(2, Placed{UID: "first", Node: "n9"})
	d.Required = rack
	if got := place(d); !slices.Equal(got, []string{"r2", "r2"}) {
		t.Errorf("late members join the one that is placed: %v", got)
	}
}

// A zone that none of the members may use stays the emptiest, however many of the others there are and
// whichever of them are looked at first.
func TestASpreadCountsTheZoneThatStaysEmpty(t *testing.T) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(1, "zone", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	for _, zones := range []int{2, 3, 4} {
		t.Run(fmt.Sprintf("%d zones", zones), func(t *testing.T) {
			var nodes []*corev1.Node
			var want []string
			for i := range zones {
				gpus := 8
				if i == zones-1 {
					gpus = 0
				} else {
					want = append(want, fmt.Sprintf("n%d", i))
				}
				nodes = append(nodes, stage.Node(fmt.Sprintf("n%d", i), gpus).Label("zone", fmt.Sprintf("z%d", i)).Obj())
			}
			for range 20 { // the zones are counted in another order each time
				s := newScene(t, nil, nil, nodes...)
				if got, e := s.plan(zones-1, stage.Pods(zones-1, 1, spread)...); !slices.Equal(got, want) {
					t.Fatalf("one for each zone with GPUs: got %v (%v), want %v", got, e, want)
				}
				if got, e := s.plan(zones, stage.Pods(zones, 1, spread)...); e == nil {
					t.Fatalf("one more is two more than in the empty zone: got %v", got)
				}
			}
		})
	}
}

// Without it every member would be prepared anew.
func TestTheEmptiestDomainIsKnown(t *testing.T) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(1, "zone", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	nodes := []*corev1.Node{stage.Node("n0", 1).Label("zone", "z0").Obj(), stage.Node("n1", 1).Label("zone", "z1").Obj()}
	s := newScene(t, nil, []*corev1.Pod{stage.Pod(100, 0).Node("n0").Obj()}, nodes...)
	state := newTrialState()
	if _, status, _ := s.fw.RunPreFilterPlugins(t.Context(), state, stage.Pods(1, 1, spread)[0]); !status.IsSuccess() {
		t.Fatal(status)
	}
	if got, known := emptiestOf(state); !known || !slices.Equal(got, []emptiest{{"z1", 0}}) {
		t.Errorf("got %v (%v), want the zone z1 without pods", got, known)
	}
	if got, known := emptiestOf(newTrialState()); known {
		t.Errorf("got %v of a state without spreads", got)
	}
}

// A pod that is expected on a node counts there beside the members that have their places.
func TestASpreadCountsPodsThatAreExpected(t *testing.T) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(1, "zone", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	var nodes []*corev1.Node
	for i := range 3 {
		nodes = append(nodes, stage.Node(fmt.Sprintf("n%d", i), 1).Label("zone", fmt.Sprintf("z%d", i)).Obj())
	}
	expected := stage.Pod(100, 0).NominatedNodeName("n1").Obj()
	for range 20 {
		s := newObjectScene(t, []runtime.Object{expected}, nil, nodes...)
		if got, e := s.plan(2, stage.Pods(2, 1, spread)...); !slices.Equal(got, []string{"n0", "n2"}) {
			t.Fatalf("got %v (%v), want one on n0 and one on n2", got, e)
		}
	}
}

// Whatever the exact path finds, the profile's filters accept when the members come one by one, each
// seen by a framework that knows nothing of the trial.
func TestExactPlansPassTheFiltersOneByOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var nodes []*corev1.Node
		for i := range rapid.IntRange(1, 6).Draw(r, "nodes") {
			n := stage.Node(fmt.Sprintf("n%d", i), rapid.IntRange(0, 4).Draw(r, "gpus")).Label("zone", fmt.Sprintf("z%d", rapid.IntRange(0, 2).Draw(r, "zone")))
			nodes = append(nodes, n.Obj())
		}
		labels := []string{"a", "b"}
		rules := func(p *st.PodWrapper) *st.PodWrapper {
			p = p.Label(rapid.SampledFrom(labels).Draw(r, "label"), "")
			key := rapid.SampledFrom([]string{"zone", "kubernetes.io/hostname"}).Draw(r, "key")
			other := rapid.SampledFrom(labels).Draw(r, "other")
			switch rapid.IntRange(0, 5).Draw(r, "rule") {
			case 0:
				return p.PodAntiAffinityExists(other, key, st.PodAntiAffinityWithRequiredReq)
			case 1:
				return p.PodAffinityExists(other, key, st.PodAffinityWithRequiredReq)
			case 2:
				return p.SpreadConstraint(1, key, corev1.DoNotSchedule, st.MakeLabelSelector().Exists(other).Obj(), nil, nil, nil, nil)
			case 3:
				return p.HostPort(8000)
			}
			return p
		}
		var running []*corev1.Pod
		for i := range rapid.IntRange(0, 3).Draw(r, "running") {
			node := nodes[rapid.IntRange(0, len(nodes)-1).Draw(r, "on")]
			running = append(running, rules(stage.Pod(100+i, 0)).Node(node.Name).Obj())
		}
		var members []*corev1.Pod
		for i := range rapid.IntRange(1, 6).Draw(r, "members") {
			members = append(members, rules(stage.Pod(i, rapid.IntRange(0, 2).Draw(r, "request"))).Obj())
		}
		min := rapid.IntRange(1, len(members)).Draw(r, "min")
		s := newScene(t, []string{"zone"}, running, nodes...)
		got, e := s.plan(min, members...)
		again, _ := s.plan(min, members...)
		if !slices.Equal(got, again) {
			r.Fatalf("first %v, then %v", got, again)
		}
		if e != nil {
			return
		}
		_, ctx := ktesting.NewTestContext(t)
		for i, node := range got {
			if node == "" {
				if i < min {
					r.Fatalf("member %d of %d has no place", i, min)
				}
				continue
			}
			fresh := newScene(t, nil, running, nodes...)
			state := newTrialState()
			allowed, status, _ := fresh.fw.RunPreFilterPlugins(ctx, state, members[i])
			if !status.IsSuccess() || !allowed.AllNodes() && !allowed.NodeNames.Has(node) {
				r.Fatalf("member %d is refused: %v", i, status)
			}
			info, err := fresh.fw.SnapshotSharedLister().NodeInfos().Get(node)
			if err != nil {
				r.Fatal(err)
			}
			if status := fresh.fw.RunFilterPlugins(ctx, state, members[i], info); !status.IsSuccess() {
				r.Fatalf("member %d is refused %s after %v: %v", i, node, got[:i], status)
			}
			bound := members[i].DeepCopy()
			bound.Spec.NodeName = node
			running = append(running, bound)
		}
	})
}
