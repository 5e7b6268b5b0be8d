package podgroup

// Counts is how many places of a gang are taken, each place counted once however many pods took it. Every
// place is in exactly one of Waiting, Bound, Finished, Failed and Gone.
type Counts struct {
	// Present counts towards minMember: Live + Finished.
	Present int

	// Live is the members that are there to work: Waiting + Bound.
	Live int

	// Waiting is the members without a node.
	Waiting int

	// Gated is those of Waiting that are held by scheduling gates.
	Gated int

	// Bound is the members that have a node and have not finished.
	Bound int

	// Running is those of Bound that run.
	Running int

	// Finished is the members that succeeded.
	Finished int

	// Failed is the members that failed and whose place no other pod took since.
	Failed int

	// Gone is the members that are being deleted and whose place no other pod took since.
	Gone int
}

// add counts n more (or, with a negative n, fewer) places for which m speaks.
func (c *Counts) add(m Member, n int) {
	switch m.State {
	case Gone:
		c.Gone += n
	case Failed:
		c.Failed += n
	case Succeeded:
		c.Finished += n
		c.Present += n
	case Waiting:
		c.Waiting += n
		if m.Gated {
			c.Gated += n
		}
	case Running:
		c.Running += n
		c.Bound += n
	case Bound:
		c.Bound += n
	}
	if m.State == Waiting || m.State == Bound || m.State == Running {
		c.Live += n
		c.Present += n
	}
}
