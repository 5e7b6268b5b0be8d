package planner

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// maxCauses is how many causes a sentence names: there can be one for each node.
	maxCauses = 5
	// maxClasses and maxRequests are how many kinds of members, and requests of each, it spells out.
	maxClasses, maxRequests = 4, 5
	// maxName is the longest rule or check that is quoted whole, in bytes.
	maxName = 200
	// MaxSentence is the longest text that String returns, in bytes: what a condition's message may
	// hold.
	MaxSentence = 32768
)

// clause is a part of a sentence. The ones with the highest rank are left out first.
type clause struct {
	text string
	rank int
}

// String is the explanation as one sentence.
func (e *Explanation) String() string { return e.Sentence(MaxSentence) }

// Sentence is the explanation as one sentence of at most limit bytes. What matters least is left out
// to make it fit: causes of nodes before what would help, and that before what is short.
func (e *Explanation) Sentence(limit int) string {
	clauses := e.clauses()
	size := 0
	for _, c := range clauses {
		size += len(c.text)
	}
	for size > limit && len(clauses) > 1 {
		least := 0
		for i, c := range clauses {
			if c.rank >= clauses[least].rank {
				least = i
			}
		}
		if least == 0 {
			break
		}
		size -= len(clauses[least].text)
		clauses = append(clauses[:least], clauses[least+1:]...)
	}
	var b strings.Builder
	for _, c := range clauses {
		b.WriteString(c.text)
	}
	return cut(b.String(), limit)
}

func (e *Explanation) clauses() []clause {
	out := []clause{{e.need(), 0}, {e.place(), 1}}
	add := func(text string, rank int) {
		if text != "" {
			out = append(out, clause{text, rank})
		}
	}
	add(e.tooLarge(), 2)
	add(e.shortOf(), 2)
	add(shortages("; minResources asks for more than is free: ", e.MinResources), 2)
	add(shortages("; enough is free in all, but not on whole nodes: ", e.Fragmented), 2)
	add(e.kept(), 2)
	add(e.causes(), 4)
	if e.Outside > 0 && len(e.TooLarge) == 0 && e.Outside < e.ClusterNodes {
		add(fmt.Sprintf("; %s %s no label %s", counted(e.Outside, "node"), verb(e.Outside, "has", "have"), e.Within), 5)
	}
	add(e.Advice.words(e), 3)
	return out
}

// need says who has to be placed, and how.
func (e *Explanation) need() string {
	var b strings.Builder
	members := 0
	for _, n := range e.Need {
		members += n.Members
	}
	more := ""
	if e.Placed > 0 {
		more = "more "
	}
	fmt.Fprintf(&b, "gang needs %d %smember%s", members, more, plural(members))
	if e.Placed > 0 {
		fmt.Fprintf(&b, " beside %d placed", e.Placed)
	}
	for i, n := range e.Need {
		if i == maxClasses && len(e.Need) > maxClasses+1 {
			rest := 0
			for _, other := range e.Need[i:] {
				rest += other.Members
			}
			fmt.Fprintf(&b, "; %d of %d other kinds", rest, len(e.Need)-i)
			break
		}
		b.WriteString(sep(i, " (", "; "))
		if len(e.Need) > 1 {
			fmt.Fprintf(&b, "%d ", n.Members)
		}
		b.WriteString("with " + amounts(n.Requests, "no requests"))
	}
	if len(e.Need) > 0 {
		b.WriteString(")")
	}
	for _, c := range e.Constraints {
		b.WriteString(c.words())
	}
	return b.String()
}

func amounts(of []ResourceAmount, none string) string {
	if len(of) == 0 {
		return none
	}
	var b strings.Builder
	for i, r := range of {
		if i == maxRequests && len(of) > maxRequests+1 {
			fmt.Fprintf(&b, " and %d more", len(of)-i)
			break
		}
		b.WriteString(sep(i, "", ", ") + r.Name + " " + FormatAmount(r.Name, r.Value))
	}
	return b.String()
}

func (c Constraint) words() string {
	var b strings.Builder
	if c.Members > 0 {
		fmt.Fprintf(&b, ", %d of them", c.Members)
	}
	if c.Within != "" {
		b.WriteString(" within one " + level(c.Within))
	}
	if c.SliceSize > 0 {
		fmt.Fprintf(&b, " in slices of %d per %s", c.SliceSize, c.SliceWithin)
	}
	return b.String()
}

// place says how much room there is, and where.
func (e *Explanation) place() string {
	if len(e.MinResources)+len(e.TooLarge) > 0 {
		return "" // that is all there is to say
	}
	if e.ClusterNodes == 0 {
		return "; the cluster has no nodes"
	}
	kind := noun(e.Within)
	var b strings.Builder
	switch {
	case e.Within == "":
		fmt.Fprintf(&b, ", room for %d", e.Placeable)
	case e.Nodes == 0 && e.Placed > 0:
		fmt.Fprintf(&b, "; the placed members are not in one %s", kind)
	case e.Nodes == 0:
		fmt.Fprintf(&b, "; no node has the label %s", e.Within)
	case e.Placed > 0 && e.Placeable == 0 && e.full():
		fmt.Fprintf(&b, "; the gang's %s %s is full", kind, e.Domain)
	case e.Placed > 0:
		fmt.Fprintf(&b, "; the gang's %s %s has room for %d", kind, e.Domain, e.Placeable)
	case e.Domains == 1:
		fmt.Fprintf(&b, "; the only %s %s has room for %d", kind, e.Domain, e.Placeable)
	case e.Placeable == 0:
		fmt.Fprintf(&b, "; no %s has room for any member, for example %s", kind, e.Domain)
	default:
		fmt.Fprintf(&b, "; the best of %d %ss, %s, has room for %d", e.Domains, kind, e.Domain, e.Placeable)
	}
	if all := e.members(); e.Asked < all && e.Nodes > 0 {
		fmt.Fprintf(&b, " of %d", e.Asked)
	}
	slicing := e.slicing()
	switch {
	case slicing.SliceSize == 0 || e.Slots < int64(e.Asked) && e.SliceRoom == 0 || e.Placeable >= e.Asked:
	case e.SliceRoom > 0 && e.SliceRoom < int64(slicing.SliceSize):
		fmt.Fprintf(&b, ", no %s for more than %d of a slice of %d", noun(slicing.SliceWithin), e.SliceRoom, slicing.SliceSize)
	case e.Slots >= int64(e.Asked):
		b.WriteString(", for more only if slices are torn apart")
	}
	return b.String()
}

// full reports whether it is for others' use alone that the best domain has no room.
func (e *Explanation) full() bool {
	for _, c := range e.Causes {
		if c.Kind != TooLittleLeft {
			return false
		}
	}
	return len(e.Causes) > 0
}

func (e *Explanation) members() int {
	n := 0
	for _, need := range e.Need {
		n += need.Members
	}
	return n
}

// slicing returns the first constraint that asks for slices, or the zero Constraint.
func (e *Explanation) slicing() Constraint {
	for _, c := range e.Constraints {
		if c.SliceSize > 0 {
			return c
		}
	}
	return Constraint{}
}

func (e *Explanation) tooLarge() string {
	var b strings.Builder
	for i, t := range e.TooLarge {
		if t.Largest == 0 {
			fmt.Fprintf(&b, "%sno node has %s", sep(i, "; ", ", "), t.Name)
			continue
		}
		fmt.Fprintf(&b, "%sno node has that much: a member needs %s %s, the largest node has %s", sep(i, "; ", ", "),
			t.Name, FormatAmount(t.Name, t.Needed), FormatAmount(t.Name, t.Largest))
	}
	return b.String()
}

// shortOf names what is short, unless no node may be used anyway or a single member already asks for
// too much of it.
func (e *Explanation) shortOf() string {
	usable := e.Nodes
	for _, c := range e.Causes {
		if c.Kind == Ruled {
			usable -= c.Nodes
		}
	}
	if usable == 0 {
		return ""
	}
	short := slices.DeleteFunc(slices.Clone(e.Short), func(s Shortage) bool { return e.asksTooMuchOf(s.Name) })
	start := "; short of "
	if e.Within != "" {
		start = "; short there of "
	}
	return shortages(start, short)
}

// asksTooMuchOf reports whether a single member requests more of a resource than any node has.
func (e *Explanation) asksTooMuchOf(resource string) bool {
	return slices.ContainsFunc(e.TooLarge, func(t TooLarge) bool { return t.Name == resource })
}

func shortages(start string, all []Shortage) string {
	var b strings.Builder
	for i, s := range all {
		if i == maxRequests {
			fmt.Fprintf(&b, "; and %d more", len(all)-i)
			break
		}
		fmt.Fprintf(&b, "%s%s: needed %s, free %s of %s", sep(i, start, "; "), s.Name,
			FormatAmount(s.Name, s.Needed), about(s.Name, s.Free), about(s.Name, s.Capacity))
		if s.ScrapNodes > 0 {
			fmt.Fprintf(&b, ", %s of it on %s in pieces too small for a member", about(s.Name, s.Scraps), counted(s.ScrapNodes, "node"))
		}
		for j, u := range s.UsedBy {
			fmt.Fprintf(&b, "%s%s %sby %s", sep(j, ", ", ", "), about(s.Name, u.Amount), sep(j, "used ", ""), u.Tenant)
		}
		if s.OtherTenants > 0 {
			fmt.Fprintf(&b, ", %s by %s", about(s.Name, s.Others.Amount), counted(s.OtherTenants, "other"))
		}
	}
	return b.String()
}

// kept says what is kept for others.
func (e *Explanation) kept() string {
	var b strings.Builder
	for _, k := range e.Kept {
		fmt.Fprintf(&b, "; %s %s in %s %s reserved for %s", FormatAmount(k.Name, k.Value), k.Name, k.Where, verb(int(min(k.Value, 2)), "is", "are"), k.For)
	}
	return b.String()
}

func (e *Explanation) causes() string {
	var b strings.Builder
	of := "; of "
	if e.Within != "" {
		of += "its "
	}
	rest := 0
	if len(e.TooLarge) > 0 || len(e.MinResources) > 0 && e.Within != "" {
		return "" // no node is to blame
	}
	for i, cause := range e.Causes {
		if i >= maxCauses && len(e.Causes) > maxCauses+1 {
			rest += cause.Nodes
			continue
		}
		fmt.Fprintf(&b, "%s%d %s", sep(i, of+counted(e.Nodes, "node")+": ", ", "), cause.Nodes, cut(cause.String(), maxName))
	}
	if rest > 0 {
		fmt.Fprintf(&b, ", %d for other causes", rest)
	}
	return b.String()
}

// atIssue returns those of the amounts whose resources keep the gang from its place, or all of them if
// none does.
func (e *Explanation) atIssue(of []ResourceAmount) []ResourceAmount {
	var out []ResourceAmount
	for _, a := range of {
		names := func(s Shortage) bool { return s.Name == a.Name }
		if slices.ContainsFunc(e.Short, names) || slices.ContainsFunc(e.Fragmented, names) || slices.ContainsFunc(e.MinResources, names) ||
			slices.ContainsFunc(e.Causes, func(c Cause) bool { return c.Resource == a.Name }) {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return of
	}
	return out
}

// words says what would help.
func (a *Advice) words(e *Explanation) string {
	if a == nil {
		return ""
	}
	var ways []string
	if n := a.Nodes; n != nil {
		way := fmt.Sprintf("with %d more node%s", n.Count, plural(n.Count))
		if shape := e.atIssue(n.Shape); len(shape) > 0 {
			way += " of " + amounts(shape, "")
		}
		switch {
		case e.Within == "" || e.Domain == "" || len(e.MinResources) > 0:
		case noun(e.Within) != "node":
			way += fmt.Sprintf(" in %s %s", noun(e.Within), e.Domain)
		}
		switch {
		case n.Together == 0 || n.Count == 1:
		case n.Count <= n.Together:
			way += fmt.Sprintf(", all in one %s", level(n.TogetherIn))
		default:
			way += fmt.Sprintf(", each %d of them in one %s", n.Together, level(n.TogetherIn))
		}
		ways = append(ways, way)
	}
	if len(a.End) > 0 {
		names := make([]string, len(a.End))
		for i, t := range a.End {
			names[i] = t.String()
		}
		ways = append(ways, "once "+list(names, "and")+" "+verb(len(names), "ends", "end"))
	}
	if l := a.Looser; l != nil {
		switch {
		case l.Slices && l.Within == "":
			ways = append(ways, "now without slices")
		case l.Slices:
			ways = append(ways, "now with slices per "+l.Within)
		case l.Within == "":
			ways = append(ways, "now anywhere in the cluster")
		default:
			ways = append(ways, "now within one "+level(l.Within))
		}
	}
	if len(ways) == 0 {
		return ""
	}
	return "; would fit " + strings.Join(ways, ", or ")
}
