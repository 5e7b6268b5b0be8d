package podgroup

import (
	"fmt"
	"strconv"
	"time"
)

// Annotations of a PodGroup that say how its gang is treated besides where it goes. Those that pods without a gang
// may carry too say so.
const (
	// RendezvousTimeoutAnnotation is how long the members may take from the commit until enough of them are ready:
	// a duration such as "10m", "0" for no limit. Without it the scheduler's default holds.
	RendezvousTimeoutAnnotation = "muster.dev/rendezvous-timeout"

	// MatchPolicyAnnotation is which members make the quorum: see MatchPolicy.
	MatchPolicyAnnotation = "muster.dev/match-policy"

	// NotBeforeAnnotation is the time, in the format of RFC 3339, before which the gang is not planned. The podgroup
	// controller sets it when it released the gang.
	NotBeforeAnnotation = "muster.dev/not-before"

	// PreemptibleAnnotation is "false" if nobody may preempt the gang. Also for pods without a gang.
	PreemptibleAnnotation = "muster.dev/preemptible"

	// RunTimeAnnotation is the longest that the gang runs, counted from its start: a duration. Also for pods
	// without a gang.
	RunTimeAnnotation = "muster.dev/run-time"

	// LastCheckpointTimeAnnotation is when the work was saved last, in the format of RFC 3339: what was done before
	// is not lost if the gang is preempted. Also for pods without a gang.
	LastCheckpointTimeAnnotation = "muster.dev/last-checkpoint-time"

	// ProvisioningWindowAnnotation is for how long nodes that join the cluster one at a time are held for the gang:
	// a duration. Without it the scheduler's default holds.
	ProvisioningWindowAnnotation = "muster.dev/provisioning-window"
)

// Annotations of a PodGroup in which the podgroup controller keeps what it did about the gang's rendezvous, so that
// it knows after a restart. Beside them it sets NotBeforeAnnotation.
const (
	// RendezvousAttemptsAnnotation is how many rendezvous in a row timed out.
	RendezvousAttemptsAnnotation = "muster.dev/rendezvous-attempts"

	// ReleasedAtAnnotation is when the gang was released last, in the format of RFC 3339.
	ReleasedAtAnnotation = "muster.dev/released-at"

	// GivenUpAnnotation is "true" if the gang is not planned any more, because too many rendezvous timed out. Whoever
	// removes it gives the gang one more try.
	GivenUpAnnotation = "muster.dev/given-up"

	// AdmittedAtAnnotation is when a gang with the match policy OnceSatisfied had its quorum first, in the format of
	// RFC 3339.
	AdmittedAtAnnotation = "muster.dev/admitted-at"
)

// settingsAnnotations are all annotations that ParseSettings reads.
var settingsAnnotations = []string{
	RendezvousTimeoutAnnotation, MatchPolicyAnnotation, NotBeforeAnnotation, PreemptibleAnnotation,
	RunTimeAnnotation, LastCheckpointTimeAnnotation, ProvisioningWindowAnnotation,
	RendezvousAttemptsAnnotation, ReleasedAtAnnotation, GivenUpAnnotation, AdmittedAtAnnotation,
}

// MatchPolicy is which members make the quorum of minMember that a member needs to be placed.
type MatchPolicy string

const (
	// WaitingAndRunning counts members that wait, run or have finished, and asks for the quorum each time a member
	// is to be placed. It is the default.
	WaitingAndRunning MatchPolicy = "waiting-and-running"

	// OnceSatisfied asks for the quorum only until the gang was admitted once. Members that come later are placed
	// even if the others are gone.
	OnceSatisfied MatchPolicy = "once-satisfied"
)

// maxDuration bounds the durations of annotations: a year, longer than any job and far from what overflows.
const maxDuration = 365 * 24 * time.Hour

// Settings is what the annotations of one object say about how a gang, or a pod without a gang, is treated.
type Settings struct {
	// RendezvousTimeout is nil if the default holds, and 0 if there is no limit.
	RendezvousTimeout *time.Duration

	MatchPolicy MatchPolicy

	// NotBefore is zero if the gang may be planned at any time.
	NotBefore time.Time

	Preemptible bool

	// RunTime is 0 if it is not known.
	RunTime time.Duration

	// LastCheckpoint is zero if nothing was saved.
	LastCheckpoint time.Time

	// ProvisioningWindow is nil if the default holds, and 0 if nothing is held.
	ProvisioningWindow *time.Duration

	// Record is what the podgroup controller wrote.
	Record Record
}

// SettingsError says what is wrong with an annotation.
type SettingsError struct {
	// Annotation is the key of the annotation.
	Annotation string

	// Problem starts with the annotation's value.
	Problem string
}

// Error names the annotation and the problem.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("annotation %s: %s", e.Annotation, e.Problem)
}

// ParseSettings reads the annotations of a PodGroup or a pod. The error, if any, is a *SettingsError about the
// first annotation that cannot be read, in the order of the constants; all others are in the Settings, so that
// a caller who goes on in spite of it does so with defaults for that one alone.
func ParseSettings(annotations map[string]string) (Settings, error) {
	p := settingsParser{annotations: annotations}
	s := Settings{
		RendezvousTimeout:  p.duration(RendezvousTimeoutAnnotation),
		MatchPolicy:        p.matchPolicy(),
		NotBefore:          p.time(NotBeforeAnnotation),
		Preemptible:        p.flag(PreemptibleAnnotation, true),
		LastCheckpoint:     p.time(LastCheckpointTimeAnnotation),
		ProvisioningWindow: p.duration(ProvisioningWindowAnnotation),
		Record: Record{
			Attempts:   p.count(RendezvousAttemptsAnnotation),
			ReleasedAt: p.time(ReleasedAtAnnotation),
			GivenUp:    p.flag(GivenUpAnnotation, false),
			AdmittedAt: p.time(AdmittedAtAnnotation),
		},
	}
	if !s.Record.ReleasedAt.IsZero() {
		s.Record.NotBefore = s.NotBefore
	}
	if runTime := p.duration(RunTimeAnnotation); runTime != nil {
		s.RunTime = *runTime
	}
	if p.err != nil {
		return s, p.err
	}
	return s, nil
}

// SameSettings reports whether two objects' annotations say the same in the same words.
func SameSettings(a, b map[string]string) bool {
	for _, key := range settingsAnnotations {
		x, inA := a[key]
		y, inB := b[key]
		if x != y || inA != inB {
			return false
		}
	}
	return true
}

type settingsParser struct {
	annotations map[string]string
	err         *SettingsError
}

func (p *settingsParser) fail(annotation, value, problem string) {
	if p.err != nil {
		return
	}
	problem = wrong(annotation, "%q "+problem, value).Problem
	p.err = &SettingsError{Annotation: annotation, Problem: problem}
}

func (p *settingsParser) duration(annotation string) *time.Duration {
	value, ok := p.annotations[annotation]
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		p.fail(annotation, value, `is not a duration such as "90s", "10m" or "2h30m"`)
	case d < 0:
		p.fail(annotation, value, "must not be negative")
	case d > maxDuration:
		p.fail(annotation, value, "is more than a year (8760h)")
	default:
		return &d
	}
	return nil
}

func (p *settingsParser) time(annotation string) time.Time {
	value, ok := p.annotations[annotation]
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		p.fail(annotation, value, `is not a time such as "2026-03-01T12:00:00Z" (RFC 3339)`)
		return time.Time{}
	}
	return t
}

func (p *settingsParser) flag(annotation string, otherwise bool) bool {
	switch value, ok := p.annotations[annotation]; {
	case !ok:
		return otherwise
	case value == "true" || value == "false":
		return value == "true"
	default:
		p.fail(annotation, value, `must be "true" or "false"`)
		return otherwise
	}
}

func (p *settingsParser) count(annotation string) int {
	value, ok := p.annotations[annotation]
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		p.fail(annotation, value, "is not a number of 0 or more")
		return 0
	}
	return n
}

func (p *settingsParser) matchPolicy() MatchPolicy {
	value, ok := p.annotations[MatchPolicyAnnotation]
	switch policy := MatchPolicy(value); {
	case !ok || policy == WaitingAndRunning:
	case policy == OnceSatisfied:
		return policy
	default:
		p.fail(MatchPolicyAnnotation, value, fmt.Sprintf("must be %q or %q", WaitingAndRunning, OnceSatisfied))
	}
	return WaitingAndRunning
}
