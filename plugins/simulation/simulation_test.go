package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// soak makes TestInvariantsHold take so many steps, from other seeds each time, instead of the usual ones.
var soak = flag.Int("soak", 0, "take so many random steps, on all cores")

// The usual steps: from one seed, so that a change that breaks nothing does not fail.
const (
	checks        = 110
	stepsPerCheck = 100
	usualSeed     = 11
)

// setFlag sets a flag unless it was given on the command line.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	was := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(flag.Set(name, was)) })
}

// Whatever happens, in whatever order: the invariants of the design hold after every step.
func TestInvariantsHold(t *testing.T) {
	setFlag(t, "rapid.steps", fmt.Sprint(stepsPerCheck))
	if *soak == 0 {
		setFlag(t, "rapid.checks", fmt.Sprint(checks))
		setFlag(t, "rapid.seed", fmt.Sprint(usualSeed))
		var steps atomic.Int64
		var c coverage
		rapid.Check(t, func(t *rapid.T) { walk(t, &steps, &c) })
		c.check(t, steps.Load())
		return
	}
	workers := runtime.GOMAXPROCS(0)
	setFlag(t, "rapid.checks", fmt.Sprint(*soak/stepsPerCheck/workers+1))
	var steps, shown atomic.Int64
	var c coverage
	t.Cleanup(func() { c.check(t, steps.Load()) })
	started := time.Now()
	for w := range workers {
		t.Run(fmt.Sprintf("worker %d", w), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				walk(t, &steps, &c)
				if n := steps.Load(); n-shown.Load() >= int64(*soak/50) {
					shown.Store(n)
					took := time.Since(started)
					left := time.Duration(float64(took) * float64(int64(*soak)-n) / float64(n))
					fmt.Fprintf(os.Stderr, "%9d of %d steps after %v, about %v left\n", n, *soak, took.Round(time.Second), max(left, 0).Round(time.Second))
				}
			})
		})
	}
}

// walk takes random steps from an empty cluster.
func walk(t *rapid.T, steps *atomic.Int64, c *coverage) {
	m := newMachine(t)
	defer func() {
		steps.Add(int64(m.steps))
		c.add(m.i.counts)
		m.c.Close()
	}()
	t.Repeat(m.actions())
}

// The same steps give the same history, down to the last word.
func TestHistoryRepeats(t *testing.T) {
	history := func(seed uint64) string {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(t, Options{Choose: random.IntN})
		var b strings.Builder
		c.Observe(func(e Event) { fmt.Fprintln(&b, e.At.Format(time.TimeOnly), e) })
		for n := range 6 {
			c.AddNode(testNode(fmt.Sprintf("n%d", n), fmt.Sprintf("b%d", n/4), fmt.Sprintf("r%d", n/2), 8))
		}
		for n := range 40 {
			job := Job{Name: fmt.Sprintf("j%d", n), Priority: int32(random.IntN(2)), RunTime: time.Duration(1+random.IntN(60)) * time.Second}
			for range 1 + random.IntN(5) {
				job.Sizes = append(job.Sizes, []int64{1, 2, 4, 8}[random.IntN(4)])
			}
			if random.IntN(4) > 0 {
				job.MinMember = int32(len(job.Sizes))
			}
			c.Submit(job)
			for range random.IntN(30) {
				c.Step()
			}
			if random.IntN(10) == 0 {
				c.Kill(func(pod *corev1.Pod) bool { return random.IntN(2) == 0 })
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Advance(time.Duration(random.IntN(30)) * time.Second); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	for seed := range uint64(3) {
		first, second := history(seed), history(seed)
		if first != second {
			a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d, line %d: first\n%s\nand then\n%s", seed, i, a[i], b[i])
				}
			}
			t.Fatalf("seed %d: %d lines, and then %d", seed, len(a), len(b))
		}
		if n := strings.Count(first, string(Bound)); n < 60 {
			t.Errorf("seed %d: only %d pods were bound", seed, n)
		}
	}
}
