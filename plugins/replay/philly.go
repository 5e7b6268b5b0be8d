package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Mix is what a built-in trace is drawn from.
type Mix struct {
	Name, Summary string
	generate      func(random *rand.Rand, t *Trace, jobs float64)
}

// Mixes are the built-in ones.
func Mixes() []Mix { return []Mix{philly, llm} }

// GeneratorOptions choose a built-in trace.
type GeneratorOptions struct {
	Shape  Shape
	Length time.Duration
	Seed   uint64
	// Scale is how many jobs come, as a multiple of what comes by default to a GPU in a day.
	Scale float64
}

// Generate draws a trace. The same options give the same trace.
func (m Mix) Generate(o GeneratorOptions) *Trace {
	t := &Trace{Name: m.Name, Shape: o.Shape, Length: o.Length}
	gpuDays := float64(o.Shape.GPUs()) * o.Length.Hours() / 24
	m.generate(rand.New(rand.NewPCG(o.Seed, uint64(len(m.Name)))), t, gpuDays*o.Scale)
	t.sort()
	return t
}

// llamaFailures is how often training was interrupted unexpectedly per GPU and day while Llama 3 was trained: 419 times
// in 54 days on 16,384 GPUs.
const llamaFailures = 419.0 / 54 / 16384

// Philly, after Jeon and others, "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
// (USENIX ATC 2019), and its trace as others sum it up: docs/replay.md.
var philly = Mix{Name: "philly", Summary: "many small jobs with a long tail (Philly, USENIX ATC 2019)", generate: func(random *rand.Rand, t *Trace, gpuDays float64) {
	for i, submit := range arrivals(random, int(gpuDays*phillyJobs*phillyBusier), t.Length, phillyLongest*time.Second) {
		gpus := min(choose(random, phillySizes), t.Shape.GPUs())
		seconds := draw(phillyDurations, random.Float64()) * phillyStretch * math.Pow(float64(gpus), phillyExponent)
		j := jobOf("philly", i, gpus, t.Shape, submit, time.Duration(min(seconds, phillyLongest)*float64(time.Second)))
		j.Limit = declared(random, j.Duration)
		if j.underway() {
			t.Jobs = append(t.Jobs, j)
		}
	}
	t.Failures = failures(random, t.Shape, t.Length, llamaFailures, repairTime)
}}

const (
	// phillyJobs is how many come per GPU and day: 103,467 jobs in 83 days on 2,490 GPUs.
	phillyJobs = 103467.0 / 83 / 2490
	// phillyBusier is how many more jobs come here, so that there is something to wait for.
	phillyBusier = 1.8
	// phillyLongest is the longest run, of 60 days.
	phillyLongest = 60 * 24 * 3600
	// Larger jobs run longer. The exponent is ours, and the factor keeps the mean over all jobs what it is without.
	phillyExponent = 0.75
	phillyStretch  = 1 / 1.3848
	// repairTime is how long a failed node is away, on average.
	repairTime = 4 * time.Hour
)

var (
	phillySizes = []share{
		{1, 0.8400}, {2, 0.0622}, {4, 0.0500}, {8, 0.0340}, {16, 0.0108}, {32, 0.0022}, {64, 0.0006}, {128, 0.0002},
	}
	phillyDurations = []quantile{{0, 10}, {0.5, 1186}, {0.9, 12858}, {0.99, 287239}, {1, phillyLongest}}
)

// declared is the run time that an owner declares: up to three times what it turns out to be.
func declared(random *rand.Rand, duration time.Duration) time.Duration {
	return time.Duration(float64(duration)*(1+2*random.Float64())).Round(time.Second) + time.Minute
}

// LookUpMix finds a built-in mix.
func LookUpMix(name string) (Mix, error) {
	for _, m := range Mixes() {
		if m.Name == name {
			return m, nil
		}
	}
	return Mix{}, fmt.Errorf("there is no trace %q", name)
}
