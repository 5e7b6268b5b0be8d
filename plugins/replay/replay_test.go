package replay

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// policyNamed finds a policy, or ends the test.
func policyNamed(t testing.TB, name string) Policy {
	t.Helper()
	p, err := PoliciesNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return p[0]
}

func mustRun(t testing.TB, trace *Trace, policy string, settings Settings) Result {
	t.Helper()
	r, err := Run(trace, policyNamed(t, policy), settings)
	if err != nil {
		t.Fatal(err)
	}
	r.Took = 0
	return r
}

func job(name string, submit time.Duration, pods, gpus int, duration time.Duration) Job {
	return Job{Name: name, Submit: submit, Pods: pods, GPUs: gpus, Duration: duration}
}

const (
	minute = time.Minute
	starts = 2.0 // seconds until a pod that is bound runs
)

// everyEngine runs a test under the real scheduler and under the models.
func everyEngine(t *testing.T, do func(t *testing.T, policy string)) {
	for _, policy := range []string{"muster", "native", "native-real", "coscheduling", "no-gang", "no-gang-real"} {
		t.Run(policy, func(t *testing.T) { do(t, policy) })
	}
}

// A trace that can be reckoned by hand: two jobs of the whole cluster, one after the other.
func TestOneAfterTheOther(t *testing.T) {
	everyEngine(t, func(t *testing.T, policy string) {
		trace := &Trace{Name: "t", Shape: small, Length: 60 * minute, Jobs: []Job{
			job("a", 0, 4, 8, 20*minute),
			job("b", 5*minute, 4, 8, 10*minute),
		}}
		got := mustRun(t, trace, policy, DefaultSettings)
		// A native group is tried again when its backoff is over: 20 s at the most here.
		late := 0.0
		if policy == "native" || policy == "native-real" {
			late = 20
		}
		near(t, "delay of the second", got.Delay.P99, 15*60+2*starts, late)
		near(t, "mean delay", got.Delay.Mean, (starts+15*60+2*starts)/2, late/2)
		near(t, "completion of the second", got.Completion.P99, 25*60+2*starts, late)
		near(t, "utilisation", got.Utilisation, 0.5, 1e-9)
		if got.IdleHeld != 0 || got.Fragmentation != 0 || got.Unended != 0 || got.Racks != 2 {
			t.Errorf("held idle %v GPU-s, fragmented %v, unended %d, %v racks per gang; want 0, 0, 0 and 2", got.IdleHeld, got.Fragmentation, got.Unended, got.Racks)
		}
	})
}

// near fails unless got is what is wanted, or above it by no more than may be.
func near(t *testing.T, what string, got, want, above float64) {
	t.Helper()
	if got < want-1e-6 || got > want+above+1e-6 {
		t.Errorf("%s: %v, want %v (to %v)", what, got, want, want+above)
	}
}

// Half of the cluster is taken and a gang needs more than the other half: only who knows no gangs gives it what there is.
func TestWhoHoldsIdle(t *testing.T) {
	trace := &Trace{Name: "t", Shape: small, Length: 60 * minute, Jobs: []Job{
		job("long", 0, 2, 8, 30*minute),
		job("gang", time.Second, 3, 8, 10*minute),
	}}
	everyEngine(t, func(t *testing.T, policy string) {
		settings := DefaultSettings
		settings.Rendezvous = 0
		got := mustRun(t, trace, policy, settings)
		want := 0.0
		if policy == "no-gang" || policy == "no-gang-real" {
			want = 2 * 8 * (30*60 + starts - 1) // two members wait for the third until the other job ends
		}
		near(t, "held idle", got.IdleHeld, want, 0)
		near(t, "utilisation", got.Utilisation, (16*30+24*10)/(32*60.0), 1e-9)
	})
}

// What waits too long gives up, and tries again after a pause of 10 s.
func TestRendezvous(t *testing.T) {
	trace := &Trace{Name: "t", Shape: small, Length: 60 * minute, Jobs: []Job{
		job("long", 0, 2, 8, 15*minute),
		job("gang", time.Second, 3, 8, 10*minute),
	}}
	for _, policy := range []string{"no-gang", "no-gang-real"} {
		got := mustRun(t, trace, policy, DefaultSettings)
		if got.GaveUp != 1 || got.Restarts != 1 {
			t.Errorf("%s: gave up %d times, restarted %d times; want 1 and 1", policy, got.GaveUp, got.Restarts)
		}
		near(t, policy+": held idle", got.IdleHeld, 16*(15*60+starts-1-10), 0)
	}
}

// A node that fails costs what was done since the last checkpoint, and its job runs elsewhere.
func TestNodeFailure(t *testing.T) {
	everyEngine(t, func(t *testing.T, policy string) {
		trace := &Trace{Name: "t", Shape: small, Length: 4 * time.Hour,
			Jobs:     []Job{job("a", 0, 2, 8, 2*time.Hour)},
			Failures: []Failure{{Node: 0, At: 45 * minute, Repair: time.Hour}},
		}
		got := mustRun(t, trace, policy, DefaultSettings)
		if got.Restarts == 0 {
			// The gang was elsewhere.
			trace.Failures[0].Node = 3
			got = mustRun(t, trace, policy, DefaultSettings)
		}
		lost := 15*60 - starts
		near(t, "lost", got.FailureWaste, 16*lost, 0)
		if got.Restarts != 1 || got.Unended != 0 || got.PreemptionWaste != 0 {
			t.Errorf("%d restarts, %d unended, %v preempted; want 1, 0 and 0", got.Restarts, got.Unended, got.PreemptionWaste)
		}
		// Nodes that are free take the new pods at once.
		near(t, "completion", got.Completion.Mean, 2*3600+lost+2*starts, 10)
		near(t, "utilisation of what works", got.Utilisation, 16*(2*3600+lost)/(32*4*3600-8*3600), 1e-3)
	})
}

func TestFragmentation(t *testing.T) {
	a := newAccount(small, time.Hour)
	a.take(0, 3)
	a.advance(time.Minute)
	if got, want := a.fragmentation(), 5.0/29; math.Abs(got-want) > 1e-12 {
		t.Errorf("fragmentation %v, want %v", got, want)
	}
	a.fail(0)
	a.take(0, -3)
	a.repair(0)
	if a.total != 32 || a.split != 0 || a.gpus != 32 {
		t.Errorf("%d GPUs free, %d of them split, of %d; want 32, 0, 32", a.total, a.split, a.gpus)
	}
}

func TestDistribution(t *testing.T) {
	var values []float64
	for i := range 100 {
		values = append(values, float64(100-i))
	}
	if diff := cmp.Diff(Distribution{Mean: 50.5, P50: 50, P90: 90, P99: 99}, distributionOf(values)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Distribution{}, distributionOf(nil)); diff != "" {
		t.Error(diff)
	}
}

// busy is a small cluster that more is asked of than it has.
func busy(seed uint64) *Trace {
	m := philly
	if seed%2 == 0 {
		m = llm
	}
	return m.Generate(GeneratorOptions{Shape: Shape{Nodes: 16, GPUsPerNode: 8, NodesPerRack: 4, RacksPerBlock: 2}, Length: 24 * time.Hour, Seed: seed, Scale: 1})
}

// Muster never gives a gang a part of what it needs, whatever the trace; and the same trace gives the same numbers.
func TestMusterHoldsNothingIdle(t *testing.T) {
	for seed := range uint64(2) {
		trace := busy(seed)
		for _, policy := range []string{"muster", "muster-reservation"} {
			first := mustRun(t, trace, policy, DefaultSettings)
			if first.IdleHeld != 0 || first.GaveUp != 0 || first.Unended != 0 {
				t.Errorf("seed %d: %s held %v GPU-s idle, gave up %d times, left %d jobs", seed, policy, first.IdleHeld, first.GaveUp, first.Unended)
			}
			if diff := cmp.Diff(first, mustRun(t, trace, policy, DefaultSettings)); diff != "" {
				t.Errorf("seed %d: %s: the same trace gave other numbers: %s", seed, policy, diff)
			}
		}
	}
}

// The model of the native scheduler does as the real one does, within a tenth.
func TestModelsAreLikeTheRealOnes(t *testing.T) {
	trace := &Trace{Name: "t", Shape: Shape{Nodes: 8, GPUsPerNode: 8, NodesPerRack: 4, RacksPerBlock: 1}, Length: 4 * time.Hour}
	for i := range 30 {
		trace.Jobs = append(trace.Jobs, job(fmt.Sprintf("j%d", i), time.Duration(i)*6*minute, 1+i%4, 4+4*(i/2%2), time.Duration(10+7*(i%5))*minute))
	}
	for _, model := range []string{"native-packed"} {
		m, r := mustRun(t, trace, model, DefaultSettings), mustRun(t, trace, model+"-real", DefaultSettings)
		summary := fmt.Sprintf("%s: completion %.0f s, real %.0f s; held idle %.0f GPU-s, real %.0f GPU-s; used %.3f, real %.3f",
			model, m.Completion.Mean, r.Completion.Mean, m.IdleHeld, r.IdleHeld, m.Utilisation, r.Utilisation)
		t.Log(summary)
		if m.Completion.Mean > 1.1*r.Completion.Mean || m.Unended > r.Unended || m.IdleHeld > 1.1*r.IdleHeld {
			t.Errorf("the model is worse than the scheduler: %s", summary)
		}
		if model == "native-packed" && m.Completion.Mean < 0.9*r.Completion.Mean {
			t.Errorf("the model is far from the scheduler: %s", summary)
		}
	}
}

// Three jobs wait for the whole cluster: only the order of the queue decides who goes first.
func TestOrders(t *testing.T) {
	trace := &Trace{Name: "t", Shape: small, Length: 4 * time.Hour, Jobs: []Job{
		job("runs", 0, 4, 8, 10*minute),
		job("old", 1*minute, 4, 8, 20*minute),
		job("little", 2*minute, 3, 8, 30*minute),
		job("short", 3*minute, 4, 8, 5*minute),
	}}
	for i := range trace.Jobs {
		trace.Jobs[i].Limit = trace.Jobs[i].Duration
	}
	for policy, want := range map[string]float64{
		// The end of each, in minutes, one after the other: old, little, short; little, old, short; short, old, little.
		"oldest-first":   10 + 30 - 1 + 60 - 2 + 65 - 3,
		"smallest-first": 10 + 40 - 2 + 60 - 1 + 65 - 3,
		"shortest-first": 10 + 15 - 3 + 35 - 1 + 65 - 2,
	} {
		got := mustRun(t, trace, policy, DefaultSettings)
		near(t, policy, got.Completion.Mean*4, 60*want, 60)
	}
	// The real one, with the same orders.
	for policy, want := range map[string]float64{
		"muster":          10 + 30 - 1 + 60 - 2 + 65 - 3,
		"muster-shortest": 10 + 15 - 3 + 35 - 1 + 65 - 2,
	} {
		got := mustRun(t, trace, policy, DefaultSettings)
		near(t, policy, got.Completion.Mean*4, 60*want, 60)
	}
}
