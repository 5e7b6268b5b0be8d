package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// stage returns an act of two jobs, atlas of 2 and birch of 1 pods, that began at 0 s, and what it prints.
func stage() (*act, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &act{
		screen: &Screen{out: out},
		nodes:  []mapNode{{name: "n0", rack: "r", gpus: 1}, {name: "n1", rack: "r", gpus: 1}},
		began:  at(0),
		ledger: newLedger(at(0), map[string]int{"atlas": 2, "birch": 1}),
		jobs: []*job{
			{workload: workload{name: "atlas", nodes: 2, training: 10 * time.Second}},
			{workload: workload{name: "birch", nodes: 1, training: 10 * time.Second}},
		},
		rendezvous: &rendezvous{started: map[string]bool{"atlas": true, "birch": true}},
	}, out
}

func (a *act) bind(t *testing.T, seconds float64, job string, pod int) {
	t.Helper()
	a.observe(t.Context(), podEvent{at: at(seconds), uid: fmt.Sprint(job, pod), pod: podState{job: job, node: fmt.Sprintf("n%d", pod), gpus: 1}}, nil)
}

func expect(t *testing.T, out *bytes.Buffer, want ...string) {
	t.Helper()
	if got := out.String(); got != strings.Join(append(want, ""), "\n") {
		t.Errorf("printed:\n%swant:\n%s", got, strings.Join(want, "\n"))
	}
	out.Reset()
}

func TestNarration(t *testing.T) {
	a, out := stage()
	a.bind(t, 1, "atlas", 0)
	a.explain(at(2))
	expect(t, out) // half a gang is nothing to speak of yet
	a.explain(at(4))
	expect(t, out, "  4.0s  atlas waits: it holds 1 of its 2 nodes, 8 GPUs that nobody can use")
	a.explain(at(8))
	expect(t, out) // nothing new
	a.draw(at(8.5))
	expect(t, out, "         r  a ·")
	a.bind(t, 9, "atlas", 1)
	expect(t, out, "  9.0s  atlas is whole at last: its 2 pods were bound over 8.0 s")
	a.draw(at(9.1))
	expect(t, out) // the map waits a moment for what comes with it
	a.draw(at(9.5))
	expect(t, out, "         r  A A")
	a.printMap()
	expect(t, out) // the same map

	a.bind(t, 10, "birch", 0)
	expect(t, out, " 10.0s  birch is whole: its 1 pods were bound within 0 ms")
}

func TestFollow(t *testing.T) {
	a, out := stage()
	seen := observation{at: at(3)}
	seen.groups.Items = []podgroup.PodGroup{{ObjectMeta: metav1.ObjectMeta{Name: "atlas"}}, {ObjectMeta: metav1.ObjectMeta{Name: "birch"}}}
	seen.groups.Items[0].Status.Conditions = []metav1.Condition{{Type: podgroup.ConditionUnschedulable, Status: metav1.ConditionTrue, Message: "no room"}}
	seen.groups.Items[1].Status.Conditions = []metav1.Condition{{Type: podgroup.ConditionUnschedulable, Status: metav1.ConditionFalse, Message: "old"}}
	seen.trainJobs.Items = []trainer.TrainJob{{ObjectMeta: metav1.ObjectMeta{Name: "atlas"}}, {ObjectMeta: metav1.ObjectMeta{Name: "birch"}}}
	seen.trainJobs.Items[1].Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue}}
	for range 2 { // seen again is not news
		if err := a.follow(seen); err != nil {
			t.Fatal(err)
		}
	}
	a.explain(at(3))
	expect(t, out, "  3.0s  birch is done", "  3.0s  atlas waits: no room")
	if a.done() {
		t.Error("atlas is not done")
	}

	seen.trainJobs.Items[0].Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobFailed, Status: metav1.ConditionTrue, Message: "bad luck"}}
	if err := a.follow(seen); err == nil || !strings.Contains(err.Error(), "atlas failed: bad luck") {
		t.Errorf("error %v", err)
	}
	seen.trainJobs.Items[0].Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue}}
	if err := a.follow(seen); err != nil || !a.done() {
		t.Errorf("error %v, done %v", err, a.done())
	}
}

func TestStuck(t *testing.T) {
	a, out := stage()
	if a.stuck(at(patience.Seconds())) {
		t.Error("stuck before the patience is over")
	}
	if !a.stuck(at(patience.Seconds() + 1)) {
		t.Error("nothing happens and nothing is in training")
	}
	a.bind(t, 1, "birch", 0)
	if a.stuck(at(1000)) {
		t.Error("a training is under way, however long it takes")
	}
	a.observe(t.Context(), podEvent{at: at(5), uid: "birch0", pod: podState{job: "birch", node: "n0", gpus: 1, finished: true}}, nil)
	a.bind(t, 6, "atlas", 1)
	if !a.stuck(at(6 + patience.Seconds() + 1)) {
		t.Error("atlas holds a node and will never get the other")
	}
	a.ledger.advance(at(20))
	out.Reset()
	o := a.end(at(20), true)
	if !o.stuck || o.wasting != 1 || o.elapsed != 20*time.Second || len(o.holding) != 1 || o.holding[0] != "atlas 1 of its 2 nodes" {
		t.Errorf("outcome %+v", o)
	}
	expect(t, out, " 20.0s  stuck: for 10s no pod has moved, and no job can", "         r  · a")
}

func TestPanel(t *testing.T) {
	a, _ := stage()
	a.bind(t, 1, "atlas", 0)
	a.jobs[1].refusal = strings.Repeat("long ", 40)
	lines := a.panel(at(2))
	text := strings.Join(lines, "\n")
	for _, want := range []string{"r  a ·", "A atlas", "holds 1 of 2 nodes and waits", "waits: long", "1 now"} {
		if !strings.Contains(text, want) {
			t.Errorf("panel without %q:\n%s", want, text)
		}
	}
	for _, line := range lines {
		if len([]rune(line)) > minColumns {
			t.Errorf("line of %d columns would wrap: %s", len([]rune(line)), line)
		}
	}
	a.bind(t, 3, "atlas", 1)
	a.jobs[0].trained = at(3)
	if got := a.state(a.jobs[0], at(7)); got != "training, 4 of 10 s" {
		t.Errorf("state %q", got)
	}
	if got := a.state(a.jobs[0], at(70)); got != "training, 10 of 10 s" {
		t.Errorf("state %q", got)
	}
	a.jobs[0].completed = at(71)
	if got := a.state(a.jobs[0], at(72)); got != "done" {
		t.Errorf("state %q", got)
	}
}
