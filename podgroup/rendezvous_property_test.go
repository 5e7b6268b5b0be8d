package podgroup

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// world is a gang to which everything happens that can, and a controller that looks at it now and then.
type world struct {
	group  *v1alpha1.PodGroup
	index  *Membership
	pods   map[string]*corev1.Pod
	now    time.Time
	policy RendezvousPolicy
	made   int

	// holding is since when the gang has held places without having met, as an onlooker sees it, and short since when
	// one that met has had too few; zero if not.
	holding, short time.Time
	met            bool

	// quorum is whether enough members are ready, and turned when that changed last.
	quorum bool
	turned time.Time
}

func (w *world) put(pod *corev1.Pod) {
	w.pods[pod.Name] = pod
	w.index.Update(pod)
}

func (w *world) drop(pod *corev1.Pod) {
	delete(w.pods, pod.Name)
	w.index.Delete(pod)
}

// replace makes another pod in the place of one that ended.
func (w *world) replace(pod *corev1.Pod) {
	w.drop(pod)
	w.made++
	w.put(newPod(fmt.Sprintf("pod-%03d", w.made)))
}

func (w *world) rests() bool {
	settings, _ := ParseSettings(w.group.Annotations)
	return settings.Record.GivenUp || w.now.Before(settings.NotBefore)
}

// observe keeps the onlooker's account up to date, which knows nothing of conditions and annotations.
func (w *world) observe() {
	counts := w.index.Get(gangKey)
	ready := counts.Finished
	for _, m := range w.index.Members(gangKey) {
		if m.Ready {
			ready++
		}
	}
	needed := int(w.group.Spec.MinMember)
	// It is the gang that met as long as one is left of those who were there.
	quorum := ready >= needed
	w.met = quorum || w.met && slices.ContainsFunc(w.index.Members(gangKey), func(m Member) bool {
		return m.holdsPlace() && m.BoundSince <= w.turned.Unix()
	})
	if quorum != w.quorum {
		w.quorum, w.turned = quorum, w.now
	}
	since := func(t *time.Time, is bool) {
		if !is {
			*t = time.Time{}
		} else if t.IsZero() {
			*t = w.now
		}
	}
	since(&w.holding, counts.Bound > 0 && !w.met)
	since(&w.short, counts.Bound > 0 && w.met && counts.Bound+counts.Finished < needed)
}

func TestRendezvousProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			group: newGroup(int32(rapid.IntRange(1, 4).Draw(t, "minMember"))), index: NewMembership(), pods: map[string]*corev1.Pod{}, now: noon,
			policy: RendezvousPolicy{
				Timeout: time.Duration(rapid.IntRange(1, 20).Draw(t, "timeout")) * time.Minute,
				Limit:   rapid.IntRange(0, 4).Draw(t, "limit"),
				Backoff: time.Minute, MaxBackoff: 5 * time.Minute,
			},
		}
		for range int(w.group.Spec.MinMember) + rapid.IntRange(0, 2).Draw(t, "surplus") {
			w.replace(newPod("none"))
		}
		pick := func(t *rapid.T, which func(*corev1.Pod) bool) *corev1.Pod {
			var names []string
			for name, pod := range w.pods {
				if which(pod) {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				t.Skip("none")
			}
			slices.Sort(names)
			return w.pods[rapid.SampledFrom(names).Draw(t, "pod")].DeepCopy()
		}
		look := func(t *rapid.T) {
			members := w.index.Members(gangKey)
			before := w.group.DeepCopy()
			verdict := look(w.group, members, w.policy, w.now)
			if verdict.Release {
				w.mayRelease(t)
				// Monotone: what is due now is due later too, and was not before it was said to be.
				if later := w.policy.Judge(before, members, w.now.Add(time.Hour)); w.met && !later.Release {
					t.Fatal("a release is due, and an hour later it is not")
				}
			}
			if again := verdict.Again; !again.IsZero() && !w.rests() {
				if w.policy.Judge(w.group, members, again.Add(-time.Second)).Release || !w.policy.Judge(w.group, members, again).Release {
					t.Fatalf("to be looked at again at %s, and the release is due at another time", again)
				}
			}
			for _, m := range ToEvict(w.group, members, w.now) {
				pod := w.pods[m.Name].DeepCopy()
				if rapid.Bool().Draw(t, "evicted at once") {
					w.replace(pod)
					continue
				}
				deleting()(pod)
				w.put(pod)
			}
			w.observe()
			if held := ToEvict(w.group, w.index.Members(gangKey), w.now); len(held) > 0 {
				t.Fatalf("%d members hold places after their gang's release", len(held))
			}
			w.isBounded(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				if w.rests() {
					t.Skip("the scheduler does not plan a gang that rests")
				}
				pod := pick(t, func(pod *corev1.Pod) bool { return StateOf(pod) == Waiting })
				bound(pod)
				boundAt(w.now)(pod)
				w.put(pod)
				w.observe()
				look(t)
			},
			"become ready": func(t *rapid.T) {
				pod := pick(t, holdsNode)
				pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
				ready()(pod)
				w.put(pod)
				w.observe()
				look(t)
			},
			"become unready": func(t *rapid.T) {
				pod := pick(t, isReady)
				pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
				w.put(pod)
				w.observe()
				look(t)
			},
			"succeed": func(t *rapid.T) {
				pod := pick(t, isReady)
				pod.Status.Phase = corev1.PodSucceeded
				w.put(pod)
				w.observe()
				look(t)
			},
			"fail and be replaced": func(t *rapid.T) {
				w.replace(pick(t, holdsNode))
				w.observe()
				look(t)
			},
			"be removed": func(t *rapid.T) {
				w.replace(pick(t, func(pod *corev1.Pod) bool { return StateOf(pod) == Gone }))
				w.observe()
				look(t)
			},
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
				look(t)
			},
		})
	})
}

// mayRelease fails if the gang, as an onlooker sees it, has what it needs, or has not had its time yet.
func (w *world) mayRelease(t *rapid.T) {
	counts := w.index.Get(gangKey)
	switch needed := int(w.group.Spec.MinMember); {
	case w.met && counts.Bound+counts.Finished >= needed:
		t.Fatalf("a gang that met and has its quorum is released: %+v", counts)
	case counts.Bound == 0:
		t.Fatal("a gang that holds nothing is released")
	}
	since := w.holding
	if w.met {
		since = w.short
	}
	if w.now.Sub(since) < w.policy.Timeout {
		t.Fatalf("released %s after it began to hold places in vain, want %s", w.now.Sub(since), w.policy.Timeout)
	}
}

// isBounded fails if the gang has held places in vain for longer than it may.
func (w *world) isBounded(t *rapid.T) {
	for _, since := range []time.Time{w.holding, w.short} {
		if !since.IsZero() && w.now.Sub(since) >= w.policy.Timeout {
			t.Fatalf("places are held in vain for %s and nothing is done", w.now.Sub(since))
		}
	}
}

func TestRecordSurvivesItsAnnotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			if rapid.Bool().Draw(t, label) {
				return time.Time{}
			}
			return noon.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, label)) * time.Second)
		}
		record := Record{Attempts: rapid.IntRange(0, 9).Draw(t, "attempts"), ReleasedAt: at("released"), AdmittedAt: at("admitted"), GivenUp: rapid.Bool().Draw(t, "given up")}
		if !record.ReleasedAt.IsZero() {
			record.NotBefore = at("not before")
		}
		settings, err := ParseSettings(record.Annotations())
		if err != nil || !settings.Record.Equal(record) {
			t.Fatalf("%+v became %+v (error %v)", record, settings.Record, err)
		}
	})
}
