package coscheduling

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// incomplete says why the gang cannot be planned yet, or returns "".
func (pl *Coscheduling) incomplete(key types.NamespacedName) string {
	group := pl.group(key)
	if group == nil {
		return fmt.Sprintf("PodGroup %q does not exist", key.Name)
	}
	if why := keptOut(group, pl.clock); why != "" {
		return why
	}
	counts := pl.members.Get(key)
	if quorum, ready := quorumOf(group), counts.Present-counts.Gated; ready < quorum {
		why := fmt.Sprintf("PodGroup %q needs %d members, %d exist", key.Name, quorum, counts.Present)
		if counts.Gated > 0 {
			why += fmt.Sprintf(" of which %d have scheduling gates", counts.Gated)
		}
		return why
	}
	return ""
}

// keptOut says why the PodGroup keeps its gang from being planned, whoever is there, or returns "".
func keptOut(group *v1alpha1.PodGroup, clock clock.PassiveClock) string {
	if problem := podgroup.Problem(group); problem != "" {
		return fmt.Sprintf("PodGroup %q is invalid: %s", group.Name, problem)
	}
	settings, _ := podgroup.ParseSettings(group.Annotations)
	switch at := settings.NotBefore.UTC().Format(time.RFC3339); {
	case settings.Record.GivenUp:
		return fmt.Sprintf("PodGroup %q was given up, its rendezvous timed out %d times; to try once more, remove its annotation %s",
			group.Name, settings.Record.Attempts, podgroup.GivenUpAnnotation)
	case settings.NotBefore.IsZero() || !clock.Now().Before(settings.NotBefore):
		return ""
	case settings.Record.ReleasedAt.IsZero():
		return fmt.Sprintf("PodGroup %q is not planned before %s, which its annotation %s says", group.Name, at, podgroup.NotBeforeAnnotation)
	default:
		return fmt.Sprintf("PodGroup %q rests until %s because its rendezvous timed out (%d so far)", group.Name, at, settings.Record.Attempts)
	}
}

// quorumOf is how many members the gang needs for one of them to be placed: none beside it if it was admitted once
// and its match policy asks for no more.
func quorumOf(group *v1alpha1.PodGroup) int {
	settings, _ := podgroup.ParseSettings(group.Annotations)
	if settings.MatchPolicy == podgroup.OnceSatisfied && !settings.Record.AdmittedAt.IsZero() {
		return 0
	}
	return int(group.Spec.MinMember)
}

// keepOut lets a commit go whose gang is not to be planned any more, and sees to it that a gang that rests is looked
// at when it may be planned.
func (pl *Coscheduling) keepOut(logger klog.Logger, key types.NamespacedName, group *v1alpha1.PodGroup) {
	if why := keptOut(group, pl.clock); why != "" {
		pl.letCommitGo(logger, key, why)
	}
	settings, _ := podgroup.ParseSettings(group.Annotations)
	if settings.NotBefore.IsZero() {
		return
	}
	if rest := settings.NotBefore.Sub(pl.clock.Now()); rest > 0 {
		pl.clock.AfterFunc(rest, func() { pl.settle(logger, key) })
	}
}
