package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// Preempted is a victim as an explanation tells of it.
type Preempted struct {
	Tenant
	Priority int32
	Pods     int
}

// WouldPreempt adds to the explanation of a refusal who would go for the gang, by a preemption that was found
// among the victims and is not done: because the gang may not preempt, for example. After Advise, if that is asked.
func (e *Explanation) WouldPreempt(p *Preemption, victims []Victim) {
	if e.Advice == nil {
		e.Advice = &Advice{}
	}
	e.Advice.Preempt = nil
	for _, i := range p.Victims {
		v := &victims[i]
		e.Advice.Preempt = append(e.Advice.Preempt, Preempted{v.Tenant, v.Priority, v.Pods})
	}
	slices.SortStableFunc(e.Advice.Preempt, func(a, b Preempted) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), compareTenants(a.Tenant, b.Tenant))
	})
}

// preempting names the victims, the largest first.
func preempting(all []Preempted) string {
	named := min(len(all), maxUsers)
	if len(all) == maxUsers+1 {
		named++ // "1 other" is not shorter than its name
	}
	var names []string
	for _, v := range all[:named] {
		if v.Pod {
			names = append(names, fmt.Sprintf("%s (priority %d)", v.Tenant, v.Priority))
		} else {
			names = append(names, fmt.Sprintf("%s (priority %d, %s)", v.Tenant, v.Priority, counted(v.Pods, "pod")))
		}
	}
	if rest := all[named:]; len(rest) > 0 {
		pods := 0
		for _, v := range rest {
			pods += v.Pods
		}
		names = append(names, fmt.Sprintf("%s (%s)", counted(len(rest), "other"), counted(pods, "pod")))
	}
	return "by preempting " + list(names, "and")
}
