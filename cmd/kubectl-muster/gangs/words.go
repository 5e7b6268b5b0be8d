package gangs

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/muster-sched/muster/podgroup"
)

// Explain writes how far a gang is, what it waits for, what is under way for it, and which members are in trouble.
func (g *Gang) Explain(w io.Writer, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", g.Kind(), g.Key)
	if g.Phase != "" {
		fmt.Fprintf(&b, ": %s", g.Phase)
	}
	fmt.Fprintf(&b, ", %s of %d needed, priority %d, made %s ago\n", g.states(), g.MinMember, g.Priority, ago(g.Created, now))
	if why := g.Why(); why != nil {
		say(&b, why, now)
	}
	for _, note := range g.Notes() {
		say(&b, &note, now)
	}
	for _, m := range g.Members {
		if m.Trouble != "" {
			fmt.Fprintf(&b, "pod %s on %s: %s\n", m.Name, m.Node, m.Trouble)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func say(b *strings.Builder, c *metav1.Condition, now time.Time) {
	fmt.Fprintf(b, "%s for %s (%s): %s\n", c.Reason, ago(c.LastTransitionTime.Time, now), c.Type, c.Message)
}

// states counts the members that exist by how far they are.
func (g *Gang) states() string {
	counts := map[podgroup.State]int{}
	for _, m := range g.Members {
		counts[m.State]++
	}
	var parts []string
	for state := podgroup.Gone; state <= podgroup.Succeeded; state++ {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(state.String())))
		}
	}
	if len(parts) == 0 {
		return "no members"
	}
	slices.Reverse(parts)
	return "members " + strings.Join(parts, ", ")
}

// Table writes gangs one below the other, in their order. With all, what each waits for is written to its end, otherwise
// to the first half sentence.
func Table(w io.Writer, gangs []*Gang, all bool, now time.Time) error {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "NAMESPACE\tNAME\tPRIORITY\tWAITING\tNEEDED\tAGE\tREASON\tMESSAGE")
	for _, g := range gangs {
		reason, message := "", ""
		if why := g.Why(); why != nil {
			reason, message = why.Reason, why.Message
		}
		if first, _, cut := strings.Cut(message, "; "); cut && !all {
			message = first
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", g.Key.Namespace, g.Key.Name, g.Priority, len(g.Members), g.MinMember, ago(g.Created, now), reason, message)
	}
	return out.Flush()
}

func ago(t, now time.Time) string { return duration.HumanDuration(now.Sub(t)) }
