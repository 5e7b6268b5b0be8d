package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// leave makes a folder as a run leaves it.
func leave(t *testing.T, folder string, c workload.Case, scheduler string, seconds float64, p *profile.Profile) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name string, what any) {
		data, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(workload.RunFile, workload.Run{Case: c, Scheduler: workload.Scheduler{Name: scheduler}})
	put(workload.ObservationFile, workload.Observation{Seconds: seconds, Pods: c.Pods(), GangSeconds: []float64{seconds / 2, seconds}, LiveHeapBytes: 100 << 20})
	for _, file := range []string{workload.ProfileFile, workload.HeapFile} {
		var out bytes.Buffer
		if err := p.Write(&out); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// spent is a profile in which stacks of functions, outermost first, took so many seconds.
func spent(stacks map[string]int64) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}}
	for stack, seconds := range stacks {
		sample := &profile.Sample{Value: []int64{seconds * 1e9}}
		for _, name := range strings.Split(stack, ";") {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			sample.Location = append([]*profile.Location{l}, sample.Location...)
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

func TestReport(t *testing.T) {
	folder := t.TempDir()
	gang := workload.Case{Name: "gang-1000x3", About: "gangs of 3", Nodes: 5000, Gangs: []workload.Gangs{{Count: 1000, Size: 3}}}
	ours := spent(map[string]int64{
		"main;k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne;github.com/muster-sched/muster/plugins/gangplan.Plan": 3,
		"main;k8s.io/kubernetes/pkg/scheduler.(*Scheduler).runBindingCycle;net/http.Do":                                      2,
		"main;k8s.io/apiserver/pkg/server.ServeHTTP":                                                                         7,
	})
	theirs := spent(map[string]int64{"main;k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne": 9})
	leave(t, filepath.Join(folder, "a"), gang, workload.Ours, 20, ours)
	leave(t, filepath.Join(folder, "b"), gang, workload.Ours, 30, ours)
	leave(t, filepath.Join(folder, "c"), gang, workload.Ours, 25, ours)
	leave(t, filepath.Join(folder, "d"), gang, workload.Ceiling, 30, theirs)
	if err := os.MkdirAll(filepath.Join(folder, "without-figures"), 0o755); err != nil {
		t.Fatal(err)
	}

	page := filepath.Join(folder, "page.md")
	if err := report(folder, page, "The disk was full.", "", ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**The disk was full.**",
		"5000 nodes, 3000 pods: gangs of 3.",
		"| no gangs | 100.0 | 1.00 | 3.00 | 1.00 | 0.00 | 30.00 | 30.00 | 100 | 1.00 | 0 | 1 |",
		"| muster | 120.0 | 1.20 | 1.00 | 0.33 | 0.67 | 25.00 | 25.00 | 100 | 1.00 | 0 | 3 |",
		"| throughput of the ceiling | gang-1000x3 | at least 0.95 | 1.2 | yes |",
		"| CPU for deciding, of the ceiling's | gang-1000x3 | at most 0.5 | 0.333 | yes |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Index(string(text), "| no gangs |") > strings.Index(string(text), "| muster |") {
		t.Error("the ceiling does not come first")
	}
	if err := report(filepath.Join(folder, "results.json"), page, "The disk was full.", "", ""); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(page); err != nil || string(again) != string(text) {
		t.Errorf("the page from the JSON file differs: %v\n%s", err, again)
	}
	lines, err := os.ReadFile(filepath.Join(folder, "results.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "BenchmarkSchedulerPerf/case=gang-1000x3/scheduler=no-gangs 1 100 pods/s 3 deciding-ms/pod"; !strings.HasPrefix(string(lines), want) {
		t.Errorf("for benchstat: %s", lines)
	}
	var all results
	data, err := os.ReadFile(filepath.Join(folder, "results.json"))
	if err != nil || json.Unmarshal(data, &all) != nil || len(all.Runs) != 4 || all.Machine.Cores == 0 {
		t.Errorf("%v, %+v", err, all)
	}
}

func TestReportOfNothing(t *testing.T) {
	if err := report(t.TempDir(), "", "", "", ""); err == nil || !strings.Contains(err.Error(), "-in") {
		t.Errorf("%v", err)
	}
}

func TestAims(t *testing.T) {
	all := []summary{
		{Case: workload.Case{Name: "topology-750x4"}, Scheduler: workload.Scheduler{Name: workload.Ours}, values: map[string]float64{throughput.unit: 80, liveHeap.unit: 130}},
		{Case: workload.Case{Name: "topology-750x4"}, Scheduler: workload.Scheduler{Name: workload.KubernetesNative}, values: map[string]float64{throughput.unit: 20}},
		{Case: workload.Case{Name: "topology-750x4"}, Scheduler: workload.Scheduler{Name: workload.Ceiling}, values: map[string]float64{liveHeap.unit: 100}},
	}
	got := measure(all)
	if len(got) != 2 || got[0].value != 4 || got[0].met || got[1].value != 1.3 || got[1].met {
		t.Errorf("%+v", got)
	}
	all[0].values[throughput.unit], all[0].values[liveHeap.unit] = 100, 120
	for _, m := range measure(all) {
		if !m.met {
			t.Errorf("%s: %v is not met by %v", m.about, m.wanted(), m.value)
		}
	}
}

// Where even the scheduler without gangs does not reach what Muster is to reach, the table says so.
func TestAnAimBeyondTheCeiling(t *testing.T) {
	all := []summary{figures("gang-1000x3", workload.Ours, 140, 1), figures("gang-1000x3", workload.Coscheduling, 100, 4), figures("gang-1000x3", workload.Ceiling, 142, 2)}
	var page strings.Builder
	aimsTable(&page, measure(all))
	for _, want := range []string{
		"| throughput of Coscheduling | gang-1000x3 | at least 3 | 1.4 | no; without gangs 1.42 |",
		"| throughput of the ceiling | gang-1000x3 | at least 0.95 | 0.986 | yes |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, page.String())
		}
	}
}

// A missed aim is explained: by time or, if the heap is too large, by what is in it.
func TestExplanations(t *testing.T) {
	ours := figures("gang-1000x3", workload.Ours, 50, 0.5)
	ours.values[liveHeap.unit] = 150
	ours.CPU = cpu{Deciding: 4, Binding: 2, Process: 60}
	ours.Top = []function{{Name: "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).popped", Amount: 3}}
	ours.Heap = map[string]int64{"example.org/a.keep": 50 << 20, "example.org/a.share": 9 << 20}
	ceiling := figures("gang-1000x3", workload.Ceiling, 100, 2)
	ceiling.values[liveHeap.unit] = 100
	ceiling.Heap = map[string]int64{"example.org/a.keep": 10 << 20, "example.org/a.share": 9 << 20}
	page := markdown(machine{}, []summary{ceiling, ours}, nil)
	for _, want := range []string{
		"| throughput of the ceiling | gang-1000x3 | at least 0.95 | 0.5 | no |",
		"4.0 s of it for deciding and 2.0 s for binding", "| 75 % | `scheduler.(*Scheduler).popped` |",
		"| live heap, of the ceiling's | gang-1000x3 | at most 1.2 | 1.5 | no |", "| 40.0 | `a.keep` |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "a.share") {
		t.Error("what both have in use is said to explain the difference")
	}
	ours.values[throughput.unit], ours.values[liveHeap.unit] = 100, 110
	if page := markdown(machine{}, []summary{ceiling, ours}, nil); strings.Contains(page, "that were missed") {
		t.Error("nothing was missed, and that is explained")
	}
}

// What is known to remain of an aim is told where it is missed, and only there.
func TestWhatRemainsOfAMissedAim(t *testing.T) {
	for _, slower := range []float64{1, 2} {
		none, many := figures("gpu-waiting-0", workload.Ours, 100, 1), figures("gpu-waiting-2000", workload.Ours, 100, 1)
		none.values[median.unit], many.values[median.unit] = 1, slower
		told := strings.Contains(markdown(machine{}, []summary{none, many}, nil), "gpu-waiting-2000: What remains")
		if told != (slower == 2) {
			t.Errorf("beside waiting gangs it takes %g times as long; that what remains is told: %v", slower, told)
		}
	}
}

// Of a profile, frames around a single function are left out, and so is what is not the scheduler's.
func TestTopFunctions(t *testing.T) {
	const scheduler, muster = "k8s.io/kubernetes/pkg/scheduler.", "github.com/muster-sched/muster/plugins/coscheduling."
	var out bytes.Buffer
	if err := spent(map[string]int64{
		"main;" + scheduler + "one;" + scheduler + "cycle;" + muster + "plan;runtime.mallocgc":                         6,
		"main;" + scheduler + "one;" + scheduler + "cycle;" + muster + "order":                                         3,
		"main;" + scheduler + "one;" + scheduler + "cycle;" + scheduler + "bind;" + muster + "plan;" + muster + "plan": 1,
		"main;k8s.io/apiserver.Serve": 20,
	}).Write(&out); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cpu.pprof")
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	sum, top, err := readProfile(file)
	if err != nil || sum.Deciding != 10 || sum.Process != 30 {
		t.Errorf("%v, %+v", err, sum)
	}
	want := []function{{scheduler + "cycle", 10}, {muster + "plan", 7}, {muster + "order", 3}}
	if !slices.Equal(top, want) {
		t.Errorf("%+v", top)
	}
}
