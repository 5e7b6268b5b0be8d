package coscheduling

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// sharedClaim has a device that is reserved for pods.
func sharedClaim(pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared", UID: "shared"}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

func sharers(n int) []*corev1.Pod {
	pods := stage.Pods(n, 8, func(w *st.PodWrapper) *st.PodWrapper {
		return w.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test")
	})
	for _, p := range pods {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "shared", ResourceClaimName: ptr.To("shared")}}
	}
	return pods
}

// newClaimPlay is a play with a claim in the API server.
func newClaimPlay(t *testing.T, claim *resourcev1.ResourceClaim) (*play, *clientsetfake.Clientset) {
	t.Helper()
	p := newPlay(t)
	nodes := stage.Nodes(3, 8)
	fw, infos, client := stage.NewFrameworkWith(t, []runtime.Object{claim}, nil, nodes...)
	fw.SetPodActivator(p)
	p.handle, p.nodes = fw, infos
	p.cluster = gangplan.NewCluster(nil)
	p.leads.Store(true)
	return p, client
}

func mustBeAllocated(t *testing.T, client *clientsetfake.Clientset, want bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		c, err := client.ResourceV1().ResourceClaims("ns").Get(ctx, "shared", metav1.GetOptions{})
		return err == nil && (c.Status.Allocation != nil) == want, err
	})
	if err != nil {
		t.Fatalf("allocated is not %v: %v", want, err)
	}
}

func updates(client *clientsetfake.Clientset) (n int) {
	for _, a := range client.Actions() {
		if a.GetVerb() == "update" {
			n++
		}
	}
	return n
}

// Devices that were allocated for a gang that then lost a member are taken back, also by a scheduler that
// did not allocate them itself.
func TestIncompleteGangHoldsNoDevices(t *testing.T) {
	pods := sharers(2)
	p, client := newClaimPlay(t, sharedClaim(pods...))
	p.group(3)
	for _, pod := range pods {
		p.see(nil, pod)
	}
	p.leads.Store(false)
	p.clock.Step(firstRetry)
	if n := updates(client); n != 0 {
		t.Fatalf("%d updates by a scheduler that does not lead", n)
	}
	p.leads.Store(true)
	p.clock.Step(firstRetry)
	mustBeAllocated(t, client, false)
	if n := updates(client); n != 1 {
		t.Errorf("%d updates", n)
	}
}

// What a gang may still use, or what others use, stays.
func TestDevicesInUseStay(t *testing.T) {
	for name, change := range map[string]func(p *play, pods []*corev1.Pod) []*corev1.Pod{
		"complete": func(_ *play, pods []*corev1.Pod) []*corev1.Pod { return pods },
		"a member is bound": func(_ *play, pods []*corev1.Pod) []*corev1.Pod {
			pods[0] = with(pods[0], func(p *corev1.Pod) { p.Spec.NodeName = "n0" })
			return pods[:2]
		},
		"another pod uses it": func(_ *play, pods []*corev1.Pod) []*corev1.Pod { return pods[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			pods := sharers(3)
			p, client := newClaimPlay(t, sharedClaim(pods...))
			p.group(3)
			for _, pod := range change(p, pods) {
				p.see(nil, pod)
			}
			p.clock.Step(firstRetry)
			p.clock.Step(firstRetry)
			mustBeAllocated(t, client, true)
			if p.gangs.freeing(testKey, 0) {
				t.Error("devices are being taken back")
			}
		})
	}
}

// A gang is not planned on devices that are just being taken back from it.
func TestGangWhoseDevicesAreTakenBackWaits(t *testing.T) {
	pods := sharers(2)
	p, _ := newClaimPlay(t, sharedClaim(pods...))
	p.group(2)
	for _, pod := range pods {
		p.see(nil, pod)
	}
	p.gangs.freeing(testKey, 1)
	if _, why := p.turn(pods[0]); !strings.Contains(why, "taken back") {
		t.Errorf("got %q", why)
	}
	p.gangs.freeing(testKey, -1)
	if node, why := p.turn(pods[0]); node == "" {
		t.Error(why)
	}
}

func TestClaimSharedByTooManyMembers(t *testing.T) {
	a := gangplan.Allocation{Claim: sharedClaim(), Users: sharers(resourcev1.ResourceClaimReservedForMaxSize)}
	if why := tooManyUsers([]gangplan.Allocation{a}); why != "" {
		t.Error(why)
	}
	a.Users = sharers(resourcev1.ResourceClaimReservedForMaxSize + 1)
	if why, want := tooManyUsers([]gangplan.Allocation{a}), `resource claim "shared" is shared by 257 members, and at most 256 pods can use one`; why != want {
		t.Errorf("got %q, want %q", why, want)
	}
}
