package planner

import (
	"cmp"
	"slices"
	"sort"
)

// Reservation is where a refused gang will have its place soonest.
type Reservation struct {
	// Nodes holds the place of each needed member once the tenants that are waited for have ended, in the order of
	// Demand.Members; NoNode for members that are not needed.
	Nodes []NodeID
	// Domain names the innermost topology domain that holds the places.
	Domain string
	Wait
}

// Soonest returns where the gang, which Plan just refused with the given explanation, will have its place soonest:
// at the earliest time at which enough of the tenants whose end is known have ended or, where those are not enough,
// with the fewest pods of unknown end besides. It returns nil if no ends would help, or if it was not arithmetic
// that refused the gang.
//
// The cluster and the demand must be as Plan saw them; the cluster is left as it was. For a gang that Plan places
// whenever it fits, no earlier time exists. That no fewer pods of unknown end would do is likely and not certain.
// What a check beyond arithmetic refused to the gang is taken to be refused later too.
func (c *Cluster) Soonest(d *Demand, e *Explanation, tenants Tenants, ends Ends) *Reservation {
	l := e.learned
	if l == nil {
		l = newLearned(len(d.Classes))
	}
	if e.Undecided || e.Learned && l.empty() || len(e.TooLarge) > 0 {
		return nil
	}
	d = c.clamped(d)
	if c.fits(d, l) {
		return nil
	}
	s := &soonest{c: c, d: d, l: l}
	all := d.counts(len(d.Members)) // minResources are for all of them
	known, unknown := c.leavers(c.occupantsUsing(c.contested(d, all), d, all, c.region(d), tenants), ends)
	inTime := byEnd(known)
	defer s.leave(inTime, 0)
	if s.search(inTime) {
		return s.reserve(known[:inTime.gone])
	}
	s.leave(inTime, len(known))
	s.rate(unknown)
	var best *Reservation
	for _, o := range s.offers(unknown) {
		if s.search(&o.line) {
			if r := s.reserve(slices.Concat(known, o.order[:o.gone])); r != nil && (best == nil || r.Sooner(best.Wait)) {
				best = r
			}
		}
		s.leave(&o.line, 0)
	}
	return best
}

// region returns the domain that the gang is tied to by members in place, else the whole cluster, for which its
// minResources are asked.
func (c *Cluster) region(d *Demand) Domain {
	if len(d.Placed) > 0 && d.Required > WholeCluster && len(d.MinResources) == 0 {
		if in, ok := c.Around(d.Placed[0].Node, d.Required); ok {
			return in
		}
	}
	return c.Whole()
}

// contested returns the resources of which any node has less left than so many members could use of it, were it
// empty: nobody who uses others alone is in the gang's way. Those of the minResources are among them.
func (c *Cluster) contested(d *Demand, counts []int64) []bool {
	contested := make([]bool, len(c.resources))
	for _, a := range d.MinResources {
		contested[a.Resource] = true
	}
	most := make([]int64, len(c.resources))
	in := c.region(d)
	for node := in.Lo; node < in.Hi; node++ {
		clear(most)
		for class, n := range counts {
			rules := &d.Classes[class]
			if n == 0 || !rules.mayUse(node) {
				continue
			}
			for _, a := range rules.Requests {
				n = min(n, c.capacity[a.Resource][node]/a.Value)
			}
			for _, a := range rules.Requests {
				most[a.Resource] = plus(most[a.Resource], times(n, a.Value))
			}
		}
		for r, amount := range most {
			contested[r] = contested[r] || c.free[r][node] < amount
		}
	}
	return contested
}

// soonest is a search for what has to end before a gang fits.
type soonest struct {
	c *Cluster
	d *Demand
	l *learned
}

// line is tenants in the order in which they leave. The first gone of them have left.
type line struct {
	order []*leaver
	// stops are the numbers of tenants after which it makes sense to ask whether the gang fits, ascending.
	stops []int
	gone  int
}

// byEnd is the line of tenants that are in the order of their ends: those that end together leave together.
func byEnd(known []*leaver) *line {
	ln := &line{order: known}
	for i := range known {
		if i+1 == len(known) || known[i].at != known[i+1].at {
			ln.stops = append(ln.stops, i+1)
		}
	}
	return ln
}

// leave makes the first n tenants of a line leave, and the others stay.
func (s *soonest) leave(ln *line, n int) {
	for ; ln.gone < n; ln.gone++ {
		s.c.leave(&ln.order[ln.gone].occupant)
	}
	for ; ln.gone > n; ln.gone-- {
		s.c.stay(&ln.order[ln.gone-1].occupant)
	}
}

// search makes as few tenants of a line leave as it takes for the gang to fit. It reports whether it does.
func (s *soonest) search(ln *line) bool {
	fits := func(stop int) bool {
		s.leave(ln, ln.stops[stop])
		return s.c.fits(s.d, s.l)
	}
	last := len(ln.stops) - 1
	if last < 0 || !fits(last) {
		return false
	}
	s.leave(ln, ln.stops[sort.Search(last, fits)])
	return true
}

// reserve makes a reservation of the places that the gang has now that these tenants have left, without those of
// them that need not. It returns nil if the gang is packed in another way than before, and has none.
func (s *soonest) reserve(left []*leaver) *Reservation {
	c := s.c
	c.prepare(s.d)
	c.countBlocks(s.d, s.l)
	c.work.retries, c.work.effort = maxRetries, 0
	if !c.place(s.d, s.l, s.d.Min) {
		return nil
	}
	p := c.plan()
	return &Reservation{
		Nodes: slices.Clone(p.Nodes), Domain: p.Domain,
		Wait: c.waitFor(s.d, p.Nodes, left, c.slack(s.d)),
	}
}

// maxOffers bounds in how many domains it is searched which tenants of unknown end would have to go: in those where
// the fewest pods have to, as far as can be told from each class by itself.
const maxOffers = 32

// offer is a domain that may hold the gang when tenants of unknown end have left.
type offer struct {
	line
	pods int64 // an estimate of how many pods have to go
	lo   NodeID
}

// rate computes what each tenant is worth: how many pods have to go for the place of one member.
func (s *soonest) rate(unknown []*leaver) {
	counts := s.d.counts(s.d.Min)
	for _, o := range unknown {
		pieces := 0.0
		for _, at := range o.on {
			for class, n := range counts {
				if n == 0 {
					continue
				}
				for _, request := range s.d.Classes[class].Requests {
					if s.c.resources[request.Resource] == podsResource {
						continue
					}
					for _, a := range at.used {
						if a.Resource == request.Resource {
							pieces += min(float64(a.Value)/float64(request.Value), 1)
						}
					}
				}
			}
		}
		o.price = float64(o.pods) / max(pieces, 1e-9)
	}
	slices.SortStableFunc(unknown, func(a, b *leaver) int { return cmp.Compare(a.price, b.price) })
}

// offers lists the domains that may hold the gang, those first where the fewest pods of unknown end have to go.
func (s *soonest) offers(unknown []*leaver) []*offer {
	byNode := make([][]*leaver, len(s.c.names))
	for _, o := range unknown {
		for _, at := range o.on {
			byNode[at.node] = append(byNode[at.node], o)
		}
	}
	domains := []Domain{s.c.region(s.d)}
	if required := s.d.gangLevel(); domains[0] == s.c.Whole() && required > WholeCluster {
		domains = s.c.DomainsAt(required)
	}
	var out []*offer
	for _, in := range domains {
		if o := s.offer(in, byNode); o != nil {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *offer) int { return cmp.Or(cmp.Compare(a.pods, b.pods), cmp.Compare(a.lo, b.lo)) })
	return out[:min(len(out), maxOffers)]
}

// gangLevel is the level one domain of which must hold the gang.
func (d *Demand) gangLevel() Level {
	if len(d.Sets) == 1 {
		return max(d.Required, d.Sets[0].Required)
	}
	return d.Required
}

// step is a number of tenants of a node that leave together, and what share of its members the gang gains by it:
// the fewer pods for a share, the better.
type step struct {
	node   NodeID
	leave  []*leaver
	gained float64
	price  float64
}

// offer lists who would leave a domain, the cheapest places first. It returns nil if the gang would not fit even
// with all of them gone, as far as each class by itself goes.
func (s *soonest) offer(in Domain, byNode [][]*leaver) *offer {
	counts := s.d.counts(s.d.Min)
	lacks := s.lacks(in, counts)
	var steps []step
	for node := in.Lo; node < in.Hi; node++ {
		steps = s.appendSteps(steps, node, byNode[node], counts)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.price, b.price) })
	o := &offer{lo: in.Lo}
	left, given := map[*leaver]bool{}, map[NodeID]float64{}
	enough := lacks <= 1e-9
	leave := func(tenants []*leaver) {
		for _, t := range tenants {
			if left[t] {
				continue
			}
			left[t] = true
			o.order = append(o.order, t)
			if !enough {
				o.pods += t.pods
			}
		}
		if n := len(o.stops); len(o.order) > 0 && (n == 0 || o.stops[n-1] < len(o.order)) {
			o.stops = append(o.stops, len(o.order))
		}
	}
	for _, st := range steps {
		leave(st.leave)
		if more := st.gained - given[st.node]; more > 0 {
			given[st.node] = st.gained
			lacks -= more
		}
		enough = enough || lacks <= 1e-9
	}
	if !enough {
		return nil
	}
	for node := in.Lo; node < in.Hi; node++ {
		leave(byNode[node]) // in case that the classes cannot have their places together
	}
	return o
}

// lacks adds up what share of its members each class lacks in a domain.
func (s *soonest) lacks(in Domain, counts []int64) float64 {
	lacks := 0.0
	for class, n := range counts {
		if n > 0 {
			slots := s.c.find(s.d, s.l, class, in).slots
			lacks += float64(max(n-slots, 0)) / float64(n)
		}
	}
	return lacks
}

// appendSteps lists the numbers of tenants of a node, in the order of their prices, that open places when they
// leave.
func (s *soonest) appendSteps(steps []step, node NodeID, tenants []*leaver, counts []int64) []step {
	if len(tenants) == 0 {
		return steps
	}
	before := s.share(node, counts)
	gained, pods := 0.0, int64(0)
	for i, t := range tenants {
		used := t.usedOn(node)
		s.c.Return(node, used)
		pods += s.c.podsIn(used)
		if now := s.share(node, counts) - before; now > gained {
			gained = now
			steps = append(steps, step{node: node, leave: tenants[:i+1], gained: gained, price: float64(pods) / gained})
		}
	}
	for _, t := range tenants {
		s.c.Take(node, t.usedOn(node))
	}
	return steps
}

// share adds up for how much of each class a node has room.
func (s *soonest) share(node NodeID, counts []int64) float64 {
	share := 0.0
	for class, n := range counts {
		if rules := &s.d.Classes[class]; n > 0 && rules.mayUse(node) {
			slots, _ := s.c.slotsOn(rules, node)
			share += float64(min(slots, n)) / float64(n)
		}
	}
	return share
}
