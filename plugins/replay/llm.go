package replay

import (
	"math/rand/v2"
	"time"
)

// llm is a datacenter in which large language models are developed, after the cluster Kalos in Hu and others,
// "Characterization of Large Language Model Development in the Datacenter" (USENIX NSDI 2024): docs/replay.md.
var llm = Mix{Name: "llm", Summary: "few very large jobs and many tiny ones (Acme's Kalos, USENIX NSDI 2024)", generate: func(random *rand.Rand, t *Trace, gpuDays float64) {
	for i, submit := range arrivals(random, int(gpuDays*llmJobs), t.Length, llmLongest*time.Second) {
		kind := llmKinds[choose(random, llmShares)]
		gpus := min(choose(random, kind.sizes), t.Shape.GPUs())
		seconds := draw(kind.durations, random.Float64())
		j := jobOf(kind.name, i, gpus, t.Shape, submit, time.Duration(seconds*float64(time.Second)))
		j.Limit = declared(random, j.Duration)
		if j.underway() {
			t.Jobs = append(t.Jobs, j)
		}
	}
	t.Failures = failures(random, t.Shape, t.Length, llamaFailures, repairTime)
}}

// llmJobs is how many come per GPU and day: 20,000 in six months on 2,416 GPUs.
const llmJobs = 20000.0 / 183 / 2416

// llmLongest is the longest run, of 15 days.
const llmLongest = 15 * 24 * 3600

type llmKind struct {
	name      string
	sizes     []share
	durations []quantile
}

// The kinds of jobs, and the part of the jobs that each is.
const (
	evaluation = iota
	pretraining
	other
)

var llmShares = []share{{evaluation, 0.929}, {pretraining, 0.032}, {other, 0.039}}

var llmKinds = [...]llmKind{
	evaluation: {
		name:      "evaluation",
		sizes:     []share{{1, 0.35}, {2, 0.15}, {4, 0.2}, {8, 0.3}},
		durations: []quantile{{0, 10}, {0.53, 120}, {0.9, 7200}, {0.99, 43200}, {1, 86400}},
	},
	pretraining: {
		name:      "pretraining",
		sizes:     []share{{256, 0.3}, {512, 0.5}, {768, 0.1}, {1000, 0.1}},
		durations: []quantile{{0, 600}, {0.5, 21600}, {0.9, 216000}, {0.99, 864000}, {1, llmLongest}},
	},
	other: {
		name:      "tuning",
		sizes:     []share{{32, 0.4}, {64, 0.4}, {128, 0.2}},
		durations: []quantile{{0, 300}, {0.5, 7200}, {0.9, 86400}, {0.99, 259200}, {1, 432000}},
	},
}
