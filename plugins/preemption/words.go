package preemption

import (
	"fmt"
	"strings"
	"time"
)

// maxNamed is how many victims a text names.
const maxNamed = 8

// String says whom the room is made by, and why those: "default/low (priority 0, 8 pods, 3.2 device-hours of
// work), the cheapest for which the gang fits".
func (r *Room) String() string {
	if len(r.Victims) == 0 {
		return fmt.Sprintf("%s on %s way out already", count(len(r.Awaited), "pod"), map[bool]string{true: "its", false: "their"}[len(r.Awaited) == 1])
	}
	var names []string
	for _, u := range r.Victims[:min(len(r.Victims), maxNamed)] {
		names = append(names, u.words())
	}
	if more := len(r.Victims) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	text := list(names) + ", the least that makes room"
	if r.Domain != "" {
		text += " in " + r.Domain
	}
	if r.Violations > 0 {
		text += fmt.Sprintf("; nothing less exceeds PodDisruptionBudgets by fewer than %s", count(r.Violations, "disruption"))
	}
	return text
}

// words name a unit: what it is, its priority, how many pods and how much work end with it.
func (u *Unit) words() string {
	facts := []string{fmt.Sprintf("priority %d", u.Priority)}
	if !u.Tenant.Pod {
		facts = append(facts, count(u.Pods, "pod"))
	}
	if u.Surplus {
		facts = append(facts, "beyond what "+u.Group.String()+" needs")
	}
	if work := time.Duration(u.Lost) * time.Second; work >= time.Minute {
		facts = append(facts, fmt.Sprintf("%.1f device-hours of work", work.Hours()))
	}
	return fmt.Sprintf("%v (%s)", u.Tenant, strings.Join(facts, ", "))
}

func list(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Pods returns how many pods the victims are.
func (r *Room) Pods() int {
	n := 0
	for _, u := range r.Victims {
		n += len(u.Members)
	}
	return n
}
