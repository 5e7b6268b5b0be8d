package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// quantile is a point of a distribution: the part at is not above value.
type quantile struct{ at, value float64 }

// draw returns the value at a place of the distribution: straight lines in the logarithm between the points.
func draw(points []quantile, at float64) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].at >= at })
	if i == 0 {
		return points[0].value
	}
	if i == len(points) {
		return points[len(points)-1].value
	}
	a, b := points[i-1], points[i]
	return a.value * math.Pow(b.value/a.value, (at-a.at)/(b.at-a.at))
}

// share is a choice and how likely it is.
type share struct {
	gpus int
	part float64
}

// choose draws one of the choices, whose parts sum to 1.
func choose(random *rand.Rand, shares []share) int {
	x := random.Float64()
	for _, s := range shares {
		if x -= s.part; x < 0 {
			return s.gpus
		}
	}
	return shares[len(shares)-1].gpus
}

// arrivals draws n times in a length, more at the middle of each day than at midnight, and as many per day in the time
// before, which are negative; sorted.
func arrivals(random *rand.Rand, n int, length, before time.Duration) []time.Duration {
	const day, swing = float64(24 * time.Hour), 0.4
	n += int(float64(n) * before.Hours() / length.Hours())
	times := make([]time.Duration, 0, n)
	for len(times) < n {
		t := random.Float64()*float64(length+before) - float64(before)
		if random.Float64()*(1+swing) < 1-swing*math.Cos(2*math.Pi*t/day) {
			times = append(times, time.Duration(t))
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times
}

// failures draws when nodes fail, at a rate per GPU and day, and repairs that take from half to one and a half of
// the mean.
func failures(random *rand.Rand, shape Shape, length time.Duration, perGPUDay float64, repair time.Duration) []Failure {
	var all []Failure
	rate := perGPUDay * float64(shape.GPUs()) / float64(24*time.Hour)
	if rate <= 0 {
		return nil
	}
	for t := random.ExpFloat64() / rate; t < float64(length); t += random.ExpFloat64() / rate {
		all = append(all, Failure{
			Node: random.IntN(shape.Nodes), At: time.Duration(t),
			Repair: time.Duration((0.5 + random.Float64()) * float64(repair)),
		})
	}
	return all
}

// underway makes a job of before the trace one that has run since it came, as on a cluster with room for all. It reports
// whether something is left of it.
func (j *Job) underway() bool {
	if j.Submit >= 0 {
		return true
	}
	j.Duration += j.Submit
	j.Limit = max(j.Limit+j.Submit, j.Duration)
	j.Submit, j.Underway = 0, true
	return j.Duration > 0
}

// jobOf makes a job of a number of GPUs, in as few pods as nodes of that size allow.
func jobOf(name string, i, gpus int, shape Shape, submit, duration time.Duration) Job {
	j := Job{Name: fmt.Sprintf("%s-%06d", name, i), Submit: submit.Round(time.Second), Pods: 1, GPUs: gpus, Duration: max(duration.Round(time.Second), time.Second)}
	if gpus > shape.GPUsPerNode {
		j.Pods, j.GPUs = (gpus+shape.GPUsPerNode-1)/shape.GPUsPerNode, shape.GPUsPerNode
	}
	return j
}

// Fail replaces the failures of a trace by others, at a rate per GPU and day.
func (t *Trace) Fail(seed uint64, perGPUDay float64) {
	t.Failures = failures(rand.New(rand.NewPCG(seed, 1)), t.Shape, t.Length, perGPUDay, repairTime)
}
