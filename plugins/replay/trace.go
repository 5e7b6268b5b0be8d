package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Trace is what happens to a cluster from outside: jobs come and nodes fail.
type Trace struct {
	// Name says what it is.
	Name string
	// Shape is the cluster that it happens to.
	Shape Shape
	// Length is the time during which jobs come. Utilisation is measured in it.
	Length time.Duration
	// Jobs are in the order of their submission.
	Jobs []Job
	// Failures are in the order of their time.
	Failures []Failure
}

// Shape is a cluster of equal nodes in racks, and racks in blocks.
type Shape struct {
	Nodes         int `json:"nodes"`
	GPUsPerNode   int `json:"gpusPerNode"`
	NodesPerRack  int `json:"nodesPerRack"`
	RacksPerBlock int `json:"racksPerBlock"`
}

// DefaultShape has 2,000 GPUs: 250 nodes of 8, in racks of 10 nodes and blocks of 5 racks.
var DefaultShape = Shape{Nodes: 250, GPUsPerNode: 8, NodesPerRack: 10, RacksPerBlock: 5}

// GPUs is how many there are.
func (s Shape) GPUs() int { return s.Nodes * s.GPUsPerNode }

func (s Shape) rack(node int) int  { return node / s.NodesPerRack }
func (s Shape) block(node int) int { return s.rack(node) / s.RacksPerBlock }

// Validate reports what is wrong with a shape.
func (s Shape) Validate() error {
	if s.Nodes < 1 || s.GPUsPerNode < 1 || s.NodesPerRack < 1 || s.RacksPerBlock < 1 {
		return fmt.Errorf("a cluster needs at least one node, GPU per node, node per rack and rack per block; got %d, %d, %d and %d",
			s.Nodes, s.GPUsPerNode, s.NodesPerRack, s.RacksPerBlock)
	}
	return nil
}

// Job is a training job: equal pods that all have to run at the same time.
type Job struct {
	// Name is a DNS label, and no other job's.
	Name string
	// Submit is when the job comes, from the beginning of the trace.
	Submit time.Duration
	// Pods is how many it has, and GPUs how many each of them needs.
	Pods, GPUs int
	// Duration is how long it runs, from the moment in which the last of its pods does.
	Duration time.Duration
	// Limit is the run time that its owner declares; 0 for none.
	Limit time.Duration
	// Priority is that of its pods.
	Priority int32
	// Underway is whether the job is one of those that ran before the trace begins, and has the rest of its duration left.
	// Delays and completion times are of the others.
	Underway bool
}

// Size is how many GPUs the job needs.
func (j Job) Size() int { return j.Pods * j.GPUs }

// Failure is a node that fails and is repaired.
type Failure struct {
	Node int
	// At is when it fails, from the beginning of the trace, and Repair how long it is away.
	At, Repair time.Duration
}

// Validate reports what is wrong with a trace.
func (t *Trace) Validate() error {
	if err := t.Shape.Validate(); err != nil {
		return err
	}
	var errs []error
	names := map[string]bool{}
	for _, j := range t.Jobs {
		switch {
		case names[j.Name]:
			errs = append(errs, fmt.Errorf("there are two jobs %s", j.Name))
		case j.Pods < 1 || j.GPUs < 1 || j.Duration <= 0 || j.Submit < 0 || j.Limit < 0:
			errs = append(errs, fmt.Errorf("job %s: pods, GPUs and duration must be positive, times must not be negative", j.Name))
		case j.GPUs > t.Shape.GPUsPerNode:
			errs = append(errs, fmt.Errorf("job %s: a pod needs %d GPUs, a node has %d", j.Name, j.GPUs, t.Shape.GPUsPerNode))
		case j.Pods > t.Shape.Nodes*(t.Shape.GPUsPerNode/j.GPUs):
			errs = append(errs, fmt.Errorf("job %s: %d pods of %d GPUs never fit a cluster of %d GPUs", j.Name, j.Pods, j.GPUs, t.Shape.GPUs()))
		}
		names[j.Name] = true
	}
	for _, f := range t.Failures {
		if f.Node < 0 || f.Node >= t.Shape.Nodes || f.At < 0 || f.Repair <= 0 {
			errs = append(errs, fmt.Errorf("failure of node %d at %v: no such node, or a time that is not positive", f.Node, f.At))
		}
	}
	return errors.Join(errs...)
}

// sort brings jobs and failures into order. What comes at the same time stays in the order in which it was given.
func (t *Trace) sort() {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	slices.SortStableFunc(t.Failures, func(a, b Failure) int { return cmp.Compare(a.At, b.At) })
}

// Load is what all jobs would use if they started at once, as a part of the GPUs, on average while jobs come.
func (t *Trace) Load() float64 {
	work := 0.0
	for _, j := range t.Jobs {
		work += float64(j.Size()) * min(j.Duration, t.Length-j.Submit).Seconds()
	}
	return work / (float64(t.Shape.GPUs()) * t.Length.Seconds())
}
