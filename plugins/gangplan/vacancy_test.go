package gangplan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// What a pod claims by its own words is what it claims as a member of a demand.
func TestClaimOfAPodThatIsGone(t *testing.T) {
	for name, pod := range map[string]*corev1.Pod{
		"devices":    stage.Pod(0, 4).Obj(),
		"cpu too":    stage.Pod(0, 4).Req(map[corev1.ResourceName]string{stage.GPU: "4", "cpu": "2"}).Obj(),
		"host ports": stage.Pod(0, 4).HostPort(8080).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			fw, infos := stage.NewFramework(t, nil, stage.Nodes(1, 8)...)
			c := NewCluster(nil)
			c.Sync(infos)
			d, err := c.NewDemand(klog.Background(), []*corev1.Pod{pod}, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			claim, err := ClaimOf(pod, "n0")
			if err != nil {
				t.Fatal(err)
			}
			made := c.ClaimFor(d, 0, 0)
			free := func(claims ...Claim) map[planner.Resource]int64 {
				defer c.Hold(claims)()
				left := map[planner.Resource]int64{}
				for _, a := range made.Requests {
					left[a.Resource] = c.Free(0, a.Resource)
				}
				return left
			}
			nothing, by, made1 := free(), free(claim), free(made)
			for r, want := range made1 {
				if by[r] != want || by[r] == nothing[r] {
					t.Errorf("%s: %d left of %d, want %d", c.ResourceName(r), by[r], nothing[r], want)
				}
			}
			if plan, _, err := Plan(t.Context(), fw, c, d, []Claim{claim, claim}); err != nil || plan != nil {
				t.Errorf("planned beside two claims: %v, %v", plan, err)
			}
			if same, _ := ClaimOf(pod, "n0"); !claim.SameAs(&same) {
				t.Error("not the same as itself")
			}
			for _, other := range []Claim{must(ClaimOf(pod, "n1")), must(ClaimOf(stage.Pod(0, 5).Obj(), "n0"))} {
				if claim.SameAs(&other) {
					t.Errorf("the same as %+v", other)
				}
			}
		})
	}
}

func must(c Claim, err error) Claim {
	if err != nil {
		panic(err)
	}
	return c
}

func TestBarred(t *testing.T) {
	pod := stage.Pod(0, 4).NodeSelector(map[string]string{"rack": "a"}).Obj()
	for name, tc := range map[string]struct {
		change func(*st.NodeWrapper) *st.NodeWrapper
		want   string
	}{
		"of use":       {func(n *st.NodeWrapper) *st.NodeWrapper { return n }, ""},
		"cordoned":     {func(n *st.NodeWrapper) *st.NodeWrapper { return n.Unschedulable(true) }, causeCordoned},
		"another rack": {func(n *st.NodeWrapper) *st.NodeWrapper { return n.Label("rack", "b") }, causeSelector},
		"tainted": {func(n *st.NodeWrapper) *st.NodeWrapper {
			return n.Taints([]corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}})
		}, "with taint k:NoExecute"},
		"softly tainted": {func(n *st.NodeWrapper) *st.NodeWrapper {
			return n.Taints([]corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}})
		}, ""},
		"lost devices": {func(n *st.NodeWrapper) *st.NodeWrapper {
			n.Status.Allocatable[stage.GPU] = resource.MustParse("3")
			return n
		}, "too small for nvidia.com/gpu 4"},
		"lost them all": {func(n *st.NodeWrapper) *st.NodeWrapper { delete(n.Status.Allocatable, stage.GPU); return n }, "too small for nvidia.com/gpu 4"},
	} {
		if got := Barred(klog.Background(), pod, tc.change(stage.Node("n0", 8).Label("rack", "a")).Obj()); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
