package gputopology

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
)

var testLevels = []string{"zone", "rack"}

func nodeInfo(node *corev1.Node, pods ...*corev1.Pod) *framework.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	return info
}

func place(zone, rack, name string, gpus int) *corev1.Node {
	node := stage.Node(name, gpus)
	if zone != "" {
		node.Label("zone", zone)
	}
	if rack != "" {
		node.Label("rack", rack)
	}
	return node.Obj()
}

func TestFill(t *testing.T) {
	o := newOccupancy(testLevels, newAccelerators(DefaultAccelerators))
	o.sync([]fwk.NodeInfo{
		nodeInfo(place("a", "r", "full", 8), stage.Pod(0, 8).Obj()),
		nodeInfo(place("a", "r", "beside", 8)),
		nodeInfo(place("a", "s", "zone-mate", 8)),
		nodeInfo(place("b", "r", "namesake", 8)),
		nodeInfo(place("", "", "alone", 8), stage.Pod(1, 1).Obj()),
		nodeInfo(place("", "r", "rack-only", 8)),
		nodeInfo(place("b", "r", "cpu-only", 0)),
	})
	for node, want := range map[string]int64{
		"full":      (7 + 10 + 1) / 2, // 8 of the zone's 24 GPUs are 7 of 20, 8 of the rack's 16 are 10
		"beside":    (7 + 10 + 1) / 2,
		"zone-mate": (7 + 0 + 1) / 2,
		"namesake":  0,
		"alone":     0,
		"rack-only": 0,
		"cpu-only":  0,
		"unknown":   0,
	} {
		if got := o.fill(node, stage.GPU, 20); got != want {
			t.Errorf("%s: got %d, want %d", node, got, want)
		}
	}
}

// What is kept up to date by changes is what counting anew gives, whatever happens to the nodes.
func TestOccupancyFollowsTheSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		accelerators := newAccelerators(DefaultAccelerators)
		o := newOccupancy(testLevels, accelerators)
		infos := map[string]*framework.NodeInfo{}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node"))
			info := infos[name]
			switch action := rapid.SampledFrom([]string{"set", "pod", "assume", "delete"}).Draw(t, "action"); {
			case action == "delete":
				delete(infos, name)
			case action == "set" || info == nil:
				var pods []*corev1.Pod
				if info != nil {
					for _, p := range info.GetPods() {
						pods = append(pods, p.GetPod())
					}
				}
				domain := rapid.SampledFrom([]string{"", "x", "y"})
				infos[name] = nodeInfo(place(domain.Draw(t, "zone"), domain.Draw(t, "rack"), name, rapid.IntRange(0, 8).Draw(t, "gpus")), pods...)
			default:
				pod, err := framework.NewPodInfo(stage.Pod(step, rapid.IntRange(0, 8).Draw(t, "request")).Obj())
				if err != nil {
					t.Fatal(err)
				}
				generation := info.Generation
				info.AddPodInfo(pod)
				if action == "assume" {
					info.Generation = generation // as the snapshot does
				}
			}
			var list []fwk.NodeInfo
			for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order") {
				if info := infos[fmt.Sprintf("n%d", i)]; info != nil {
					list = append(list, info)
				}
			}
			o.sync(list)
			anew := newOccupancy(testLevels, accelerators)
			anew.sync(list)
			if len(o.nodes) != len(anew.nodes) || len(o.domains) != len(anew.domains) {
				t.Fatalf("%d nodes in %d domains, want %d in %d", len(o.nodes), len(o.domains), len(anew.nodes), len(anew.domains))
			}
			for i := range 6 {
				name := fmt.Sprintf("n%d", i)
				if got, want := o.fill(name, stage.GPU, 1000), anew.fill(name, stage.GPU, 1000); got != want {
					t.Fatalf("%s: got %d, want %d", name, got, want)
				}
			}
		}
	})
}
