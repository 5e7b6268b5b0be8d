package replay

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is what a policy made of a trace. All times are in seconds, and sums of GPUs over time in GPU-seconds.
type Result struct {
	Policy string `json:"policy"`
	Trace  string `json:"trace"`
	Peer   bool   `json:"peer"`
	// Jobs is how many came, and Unended how many of them did not end.
	Jobs    int `json:"jobs"`
	Unended int `json:"unended"`
	// Delay is from the submission of a job until it ran first, and Completion until it ended.
	Delay      Distribution `json:"queueingDelaySeconds"`
	Completion Distribution `json:"jobCompletionSeconds"`
	// Run is the mean of what jobs run: no policy has a shorter mean completion time.
	Run float64 `json:"meanRunSeconds"`
	// Sizes are the delays of jobs by their size.
	Sizes []SizeDelay `json:"sizes"`
	// Utilisation is the part of the GPUs of working nodes on which jobs ran, while jobs came.
	Utilisation float64 `json:"gpuUtilisation"`
	// IdleHeld is what pods held of jobs that lacked other pods.
	IdleHeld float64 `json:"idleHeldGPUSeconds"`
	// Fragmentation is the part of the free GPUs that were on nodes with pods.
	Fragmentation float64 `json:"fragmentation"`
	// Racks is how many racks a job of several pods was spread over, on average.
	Racks float64 `json:"racksPerGang"`
	// PreemptionWaste and FailureWaste are the work lost by pods that were deleted by a scheduler, and by nodes that failed.
	PreemptionWaste float64 `json:"preemptionWasteGPUSeconds"`
	FailureWaste    float64 `json:"failureWasteGPUSeconds"`
	// Restarts is how often jobs started again, GaveUp of these because the rendezvous took too long.
	Restarts int `json:"restarts"`
	GaveUp   int `json:"rendezvousGivenUp"`
	// Took is how long the simulation took.
	Took time.Duration `json:"tookNanoseconds"`
}

// Distribution sums up many values.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// SizeDelay is how long jobs of about the same size wait until they run.
type SizeDelay struct {
	// Nodes are how many whole nodes a job of the class has at most, 0 for those that need a part of one, and -1 for
	// the largest.
	Nodes int `json:"nodesAtMost"`
	Jobs  int `json:"jobs"`
	// Delay is their mean delay in seconds, and Total the sum, by which it adds to that of all jobs.
	Delay float64 `json:"meanDelaySeconds"`
	Total float64 `json:"totalDelaySeconds"`
}

// sizeClasses are the bounds of the classes: up to so many nodes, -1 for the rest.
var sizeClasses = []int{0, 1, 8, -1}

// sizeClass returns the index of the class of a job.
func sizeClass(j *Job, shape Shape) int {
	for i, nodes := range sizeClasses {
		if nodes < 0 || j.Size() <= nodes*shape.GPUsPerNode || nodes == 0 && j.Size() < shape.GPUsPerNode {
			return i
		}
	}
	panic("the last class has no bound")
}

// distributionOf sorts the values. Percentiles are the smallest values that so many are not above.
func distributionOf(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	at := func(q float64) float64 { return values[max(int(math.Ceil(q*float64(len(values))))-1, 0)] }
	return Distribution{Mean: sum / float64(len(values)), P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// Run lets a trace happen under a policy.
func Run(trace *Trace, policy Policy, settings Settings) (Result, error) {
	if err := trace.Validate(); err != nil {
		return Result{}, fmt.Errorf("trace %s: %w", trace.Name, err)
	}
	r := newRun(trace, settings)
	began := time.Now()
	err := withGates(policy, func() error {
		var err error
		if r.engine, err = policy.start(r); err != nil {
			return err
		}
		defer r.engine.close()
		return r.play()
	})
	if err != nil {
		return Result{}, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	r.sumUp(policy)
	r.result.Took = time.Since(began)
	return r.result, nil
}

// sumUp fills in the result. A job that did not run, or did not end, counts as if it did when the simulation ended.
func (r *run) sumUp(policy Policy) {
	res := &r.result
	res.Policy, res.Trace, res.Peer = policy.Name, r.trace.Name, policy.Peer
	res.Jobs, res.Unended = len(r.jobs), r.unended
	now := r.engine.now()
	var delays, completions []float64
	res.Sizes = make([]SizeDelay, len(sizeClasses))
	for i, nodes := range sizeClasses {
		res.Sizes[i].Nodes = nodes
	}
	for i, j := range r.trace.Jobs {
		if j.Underway {
			continue
		}
		first, end := r.jobs[i].first, r.jobs[i].end
		if first < 0 {
			first = now
		}
		if end < 0 {
			end = now
		}
		delay := (first - j.Submit).Seconds()
		class := &res.Sizes[sizeClass(&j, r.trace.Shape)]
		class.Jobs++
		class.Total += delay
		res.Run += j.Duration.Seconds()
		delays = append(delays, delay)
		completions = append(completions, (end - j.Submit).Seconds())
	}
	for i := range res.Sizes {
		res.Sizes[i].Delay = ratio(res.Sizes[i].Total, float64(res.Sizes[i].Jobs))
	}
	res.Run = ratio(res.Run, float64(len(delays)))
	res.Delay, res.Completion = distributionOf(delays), distributionOf(completions)
	res.Utilisation, res.Fragmentation, res.IdleHeld = r.account.utilisation(), r.account.fragmentation(), r.account.idleHeld
	res.Racks = ratio(float64(r.racks), float64(r.gangs))
}
