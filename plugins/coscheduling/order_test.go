package coscheduling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// orderPlugin knows PodGroups by name, each created so many seconds after the epoch.
func orderPlugin(t testing.TB, groups map[string]int) *Coscheduling {
	t.Helper()
	pl := &Coscheduling{groups: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), line: newLine(&handClock{}, &Args{})}
	for name, age := range groups {
		g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(age) * time.Second))}}
		if err := pl.groups.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return pl
}

type queuedPod struct {
	name     string
	group    string
	priority int32
	rank     int // -1 for none
	queued   int // seconds
	urgent   bool
}

// enter puts the pods into the queue.
func (q queuedPod) enter(pl *Coscheduling, t interface{ Fatal(...any) }) *framework.QueuedPodInfo {
	info := q.info(t)
	info.Pod.UID = types.UID(fmt.Sprint(q)) // one for each
	if q.urgent {
		pl.line.enter(info.Pod, standing{urgent: true})
	} else {
		pl.line.enter(info.Pod, standing{})
	}
	return info
}

func (q queuedPod) info(t interface{ Fatal(...any) }) *framework.QueuedPodInfo {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: q.name, UID: stage.UID(0), Labels: map[string]string{}}}
	pod.Spec.Priority = ptr.To(q.priority)
	if q.group != "" {
		pod.Labels[v1alpha1.GroupLabel] = q.group
	}
	if q.rank >= 0 {
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(q.rank)
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return &framework.QueuedPodInfo{PodInfo: info, QueueingParams: framework.QueueingParams{Timestamp: epoch.Add(time.Duration(q.queued) * time.Second)}}
}

func TestQueueOrder(t *testing.T) {
	pl := orderPlugin(t, map[string]int{"old": 10, "new": 20, "twin": 20})
	want := []queuedPod{
		{name: "urgent", priority: 9, rank: -1, queued: 99},
		{name: "twin-1", group: "twin", rank: 1, queued: 50, urgent: true},
		{name: "early", rank: -1, queued: 5},
		{name: "old-z", group: "old", rank: 2, queued: 80},
		{name: "old-b", group: "old", rank: 9, queued: 70},
		{name: "old-a", group: "old", rank: 10, queued: 11},
		{name: "between", rank: -1, queued: 15},
		{name: "new-0", group: "new", rank: 0, queued: 90},
		{name: "new-1", group: "new", rank: 1, queued: 21},
		{name: "twin-0", group: "twin", rank: 0, queued: 22},
		{name: "late", rank: -1, queued: 30},
		{name: "humble", priority: -1, rank: -1, queued: 1},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b queuedPod) int {
		if pl.Less(a.enter(pl, t), b.enter(pl, t)) {
			return -1
		}
		return 1
	})
	for i := range want {
		if got[i].name != want[i].name {
			t.Errorf("place %d: %s, want %s", i, got[i].name, want[i].name)
		}
	}
}

func TestQueueOrderIsStrict(t *testing.T) {
	pl := orderPlugin(t, map[string]int{"a": 1, "b": 1, "c": 2})
	draw := rapid.Custom(func(t *rapid.T) queuedPod {
		return queuedPod{
			name:     rapid.SampledFrom([]string{"p-1", "p-9", "p-10", "q"}).Draw(t, "name"),
			group:    rapid.SampledFrom([]string{"", "a", "b", "c", "missing"}).Draw(t, "group"),
			priority: rapid.Int32Range(0, 1).Draw(t, "priority"),
			rank:     rapid.IntRange(-1, 11).Draw(t, "rank"),
			queued:   rapid.IntRange(0, 3).Draw(t, "queued"),
			urgent:   rapid.Bool().Draw(t, "urgent"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := draw.Draw(t, "x"), draw.Draw(t, "y"), draw.Draw(t, "z")
		less := func(a, b queuedPod) bool { return pl.Less(a.enter(pl, t), b.enter(pl, t)) }
		if less(x, x) {
			t.Fatal("before itself")
		}
		if less(x, y) && less(y, x) {
			t.Fatal("before each other")
		}
		if less(x, y) && less(y, z) && !less(x, z) {
			t.Fatal("not transitive")
		}
		equal := func(a, b queuedPod) bool { return !less(a, b) && !less(b, a) }
		if equal(x, y) && equal(y, z) && !equal(x, z) {
			t.Fatal("equals are not equal to the same")
		}
	})
}

// A member is urgent if it enters the queue while its gang has members with a place and fewer than it needs, and
// stays so until it enters again: where it stands in the queue must not change meanwhile.
func TestWhoIsUrgent(t *testing.T) {
	p, pods := newRepairPlay(t, 3, []string{"n0", "n1", "n2"}, []int{2}, stage.Nodes(3, 8)...)
	enter := func(pod *corev1.Pod) bool {
		p.PreEnqueue(p.ctx, pod)
		return p.line.of(pod.UID).urgent
	}
	surplus := p.late(3)
	if enter(surplus) {
		t.Error("a member above the minimum is urgent")
	}
	p.lose(pods[2])
	if p.line.of(surplus.UID).urgent {
		t.Error("its place in the queue changed")
	}
	if !enter(surplus) {
		t.Error("the only member that can replace the lost one is not urgent")
	}
	later := p.late(4)
	p.follow(surplus)
	if enter(later) {
		t.Error("urgent beside the replacement")
	}
	p.see(surplus, binds(surplus, "n2"))
	p.podDeleted(p.logger, pods[1])
	if !enter(later) {
		t.Fatal("not urgent")
	}
	p.podDeleted(p.logger, later)
	p.clock.Step(forgetAfter)
	if newcomer := p.otherGang(1)[0]; enter(newcomer) {
		t.Error("a member of a gang without a place is urgent")
	}
	if n := len(p.line.standings); n != 0 {
		t.Errorf("%d members that left are remembered", n)
	}
}

func BenchmarkLess(b *testing.B) {
	pl := orderPlugin(b, map[string]int{"a": 1, "c": 2})
	x, y := queuedPod{name: "p-1", group: "a", rank: 1}.info(b), queuedPod{name: "p-1", group: "c", rank: 1}.info(b)
	b.ReportAllocs()
	for b.Loop() {
		pl.Less(x, y)
	}
}

func TestShortestGoesFirst(t *testing.T) {
	pl := orderPlugin(t, map[string]int{"long": 10, "short": 20, "twin": 30, "unknown": 5})
	pl.line = newLine(&handClock{}, &Args{QueueOrder: ShortestFirst})
	for name, runTime := range map[string]string{"long": "20h", "short": "1h", "twin": "1h"} {
		obj, _, err := pl.groups.GetByKey("ns/" + name)
		if err != nil {
			t.Fatal(err)
		}
		obj.(*v1alpha1.PodGroup).Annotations = map[string]string{podgroup.RunTimeAnnotation: runTime}
	}
	want := []string{"important", "lacking", "soon", "short-0", "short-1", "twin-0", "own", "long-0", "early", "unknown-0"}
	pods := map[string]queuedPod{
		"important": {priority: 1, rank: -1, queued: 99},
		"lacking":   {group: "long", rank: 1, urgent: true},
		"soon":      {rank: -1, queued: 70}, // by its own deadline
		"short-0":   {group: "short", rank: 0, queued: 50},
		"short-1":   {group: "short", rank: 1, queued: 40},
		"twin-0":    {group: "twin", rank: 0},
		"own":       {rank: -1, queued: 1}, // by its own annotation
		"long-0":    {group: "long", rank: 0},
		"early":     {rank: -1, queued: 1}, // declares nothing
		"unknown-0": {group: "unknown", rank: 0},
	}
	var line []*framework.QueuedPodInfo
	for name, q := range pods {
		q.name = name
		info := q.info(t)
		info.Pod.UID = types.UID(name)
		switch name {
		case "soon":
			info.Pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
		case "own":
			info.Pod.Annotations = map[string]string{podgroup.RunTimeAnnotation: "2h"}
		}
		pl.line.enter(info.Pod, pl.standingOf(info.Pod, q.urgent))
		line = append(line, info)
	}
	slices.SortFunc(line, func(a, b *framework.QueuedPodInfo) int {
		if pl.Less(a, b) {
			return -1
		}
		return 1
	})
	for i, name := range want {
		if line[i].Pod.Name != name {
			t.Errorf("place %d: %s, want %s", i, line[i].Pod.Name, name)
		}
	}
	// What a gang declares later moves nobody who is in line.
	obj, _, _ := pl.groups.GetByKey("ns/unknown")
	obj.(*v1alpha1.PodGroup).Annotations = map[string]string{podgroup.RunTimeAnnotation: "1s"}
	if last := len(line) - 1; pl.Less(line[last], line[0]) || pl.Less(line[last], line[last-1]) {
		t.Error("a gang moved within the queue, which is a heap")
	}
}
