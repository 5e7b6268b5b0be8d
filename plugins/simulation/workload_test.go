package simulation

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// SubmitGang submits a Job with a PodGroup.
func (m *machine) SubmitGang(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs {
		t.Skip("enough")
	}
	m.jobs++
	job := Job{
		Name:        fmt.Sprintf("g%d", m.jobs),
		Priority:    rapid.SampledFrom([]int32{0, 0, 5, 10}).Draw(t, "priority"),
		RunTime:     rapid.SampledFrom([]time.Duration{0, 20 * time.Second, 5 * time.Minute}).Draw(t, "run time"),
		Gated:       rapid.IntRange(0, 9).Draw(t, "gated") == 9,
		StopTime:    rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Second, slowStop}).Draw(t, "stop time"),
		Annotations: map[string]string{},
	}
	switch rapid.IntRange(0, 9).Draw(t, "preemption") {
	case 6, 7:
		job.Disruptions = ptr.To(rapid.SampledFrom([]int32{0, 0, 2}).Draw(t, "disruptions"))
	case 8:
		job.PreemptionPolicy = corev1.PreemptNever
	case 9:
		job.Annotations[podgroup.PreemptibleAnnotation] = "false"
	}
	n := rapid.IntRange(1, 6).Draw(t, "members")
	size := rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "size")
	for range n {
		job.Sizes = append(job.Sizes, size)
	}
	if rapid.IntRange(0, 3).Draw(t, "launcher") == 3 {
		job.Sizes[0] = 1
	}
	job.MinMember = int32(n)
	if rapid.IntRange(0, 3).Draw(t, "elastic") == 3 {
		job.MinMember = int32(rapid.IntRange(1, n).Draw(t, "minMember"))
	}
	maps.Copy(job.Annotations, m.topology(t, n, job.MinMember))
	if rapid.IntRange(0, 5).Draw(t, "once satisfied") == 5 {
		job.Annotations[podgroup.MatchPolicyAnnotation] = string(podgroup.OnceSatisfied)
	}
	job.WithoutGroup = rapid.IntRange(0, 9).Draw(t, "without group") == 9
	if m.declares && job.RunTime > 0 {
		job.Annotations[podgroup.RunTimeAnnotation] = (job.RunTime + 2*startTime).String()
	}
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d %s, run time %v, stop time %v, disruptions %v, gated %v, PodGroup later %v, %v",
		job.Name, job.Sizes, job.MinMember, job.Priority, job.PreemptionPolicy, job.RunTime, job.StopTime, disruptionsOf(job), job.Gated, job.WithoutGroup, job.Annotations)
	m.c.Submit(job)
	m.follow(t)
}

func disruptionsOf(job Job) string {
	if job.Disruptions == nil {
		return "any"
	}
	return fmt.Sprint(*job.Disruptions)
}

func (m *machine) topology(t *rapid.T, n int, minMember int32) map[string]string {
	a := map[string]string{}
	switch rapid.IntRange(0, 7).Draw(t, "topology") {
	case 4:
		a[podgroup.RequiredTopologyAnnotation] = "rack"
	case 5:
		a[podgroup.RequiredTopologyAnnotation] = "block"
	case 6:
		a[podgroup.PreferredTopologyAnnotation] = "rack"
	case 7:
		if n%2 == 0 && minMember%2 == 0 {
			a[podgroup.RequiredTopologyAnnotation] = "block"
			a[podgroup.SliceRequiredTopologyAnnotation] = "rack"
			a[podgroup.SliceSizeAnnotation] = "2"
		}
	}
	return a
}

// Outrank submits a gang that goes before all others and needs much of what there is.
func (m *machine) Outrank(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs+2 {
		t.Skip("enough")
	}
	if rapid.Bool().Draw(t, "calm") {
		t.Logf("for once nothing happens for a while")
		m.advance(t, roomKept+time.Second)
	}
	job := Job{Name: fmt.Sprintf("o%d", m.jobs+1), Priority: 20, RunTime: rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(t, "run time")}
	size := rapid.SampledFrom([]int64{2, 4, 8}).Draw(t, "size")
	room := int64(0)
	for name, node := range m.c.api.nodes {
		if m.c.works(name) && !node.Spec.Unschedulable {
			room += gpusIn(node) / size
		}
	}
	if room == 0 {
		// What is skipped has no place in a shrunk history, and this had consequences.
		t.Logf("  ... and no node has room for %d GPUs", size)
		m.follow(t)
		return
	}
	m.jobs++
	n := rapid.IntRange(1, int(min(room, 8))).Draw(t, "members")
	for range n {
		job.Sizes = append(job.Sizes, size)
	}
	job.MinMember = int32(n)
	job.Annotations = m.topology(t, n, job.MinMember)
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d, run time %v, %v", job.Name, job.Sizes, job.MinMember, job.Priority, job.RunTime, job.Annotations)
	m.c.Submit(job)
	m.follow(t)
}

func gpusIn(node *corev1.Node) int64 {
	q := node.Status.Allocatable[GPU]
	return q.Value()
}

// SubmitPods submits a Job of single pods.
func (m *machine) SubmitPods(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs {
		t.Skip("enough")
	}
	m.jobs++
	job := Job{
		Name:     fmt.Sprintf("p%d", m.jobs),
		Priority: rapid.SampledFrom([]int32{0, 0, 10}).Draw(t, "priority"),
		RunTime:  rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "run time"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "pods") {
		job.Sizes = append(job.Sizes, rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "size"))
	}
	if rapid.IntRange(0, 4).Draw(t, "budget") == 4 {
		job.Disruptions = ptr.To[int32](0)
	}
	t.Logf("single pods %s are submitted: %v GPUs, priority %d, run time %v, disruptions %s", job.Name, job.Sizes, job.Priority, job.RunTime, disruptionsOf(job))
	m.c.Submit(job)
	m.follow(t)
}

// someJob draws one of the Jobs that are chosen.
func (m *machine) someJob(t *rapid.T, which func(*job) bool) *job {
	var names []string
	for _, name := range m.c.names {
		if which(m.c.jobs[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("none")
	}
	return m.c.jobs[rapid.SampledFrom(names).Draw(t, "job")]
}

// somePod draws one of the pods that are chosen.
func (m *machine) somePod(t *rapid.T, which func(*corev1.Pod) bool) *corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range m.c.api.list((*corev1.Pod)(nil)) {
		if pod := o.(*corev1.Pod); which(pod) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		t.Skip("none")
	}
	return pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
}

// Withdraw deletes a Job.
func (m *machine) Withdraw(t *rapid.T) {
	j := m.someJob(t, func(*job) bool { return true })
	t.Logf("%s is withdrawn", j.Name)
	m.c.Withdraw(j.Name)
	m.follow(t)
}

// DeletePod deletes a pod, which its Job makes again.
func (m *machine) DeletePod(t *rapid.T) {
	pod := m.somePod(t, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	t.Logf("pod %s is deleted", pod.Name)
	m.c.DeletePod(pod.Name)
	m.follow(t)
}

// Interrupt submits a small gang, goes on until members wait for the rest of theirs, and deletes one of them.
func (m *machine) Interrupt(t *rapid.T) {
	if m.c.process == nil || len(m.c.jobs) >= mostJobs+2 {
		t.Skip("dead, or enough")
	}
	m.jobs++
	job := Job{Name: fmt.Sprintf("i%d", m.jobs), Priority: 10, RunTime: 20 * time.Second, Sizes: []int64{1, 1, 1}, MinMember: int32(rapid.IntRange(2, 3).Draw(t, "minMember"))}
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d, run time %v", job.Name, job.Sizes, job.MinMember, job.Priority, job.RunTime)
	m.c.Submit(job)
	more := true
	for n := 0; n < 100 && more && len(m.c.process.waiting) == 0; n++ {
		_, more = m.c.Step()
	}
	uids := sortedKeys(m.c.process.waiting)
	if len(uids) == 0 {
		t.Logf("  ... and nobody waits at Permit")
		m.follow(t)
		return
	}
	pod := m.c.process.waiting[rapid.SampledFrom(uids).Draw(t, "pod")].pod
	m.i.count("commits interrupted")
	t.Logf("pod %s is deleted while it waits at Permit", pod.Name)
	m.c.DeletePod(pod.Name)
	m.follow(t)
}

func runs(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// FailPod makes a pod fail, which its Job makes again.
func (m *machine) FailPod(t *rapid.T) {
	pod := m.somePod(t, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != "" && (runs(pod) || pod.Status.Phase == corev1.PodPending)
	})
	t.Logf("pod %s fails", pod.Name)
	m.c.EndPod(pod.Name, corev1.PodFailed)
	m.follow(t)
}

// FinishPod makes a pod succeed.
func (m *machine) FinishPod(t *rapid.T) {
	pod := m.somePod(t, runs)
	t.Logf("pod %s succeeds", pod.Name)
	m.c.EndPod(pod.Name, corev1.PodSucceeded)
	m.follow(t)
}

// HangPods makes pods that are bound next not come to run, as if their images could not be pulled.
func (m *machine) HangPods(t *rapid.T) {
	m.hung = rapid.IntRange(1, 3).Draw(t, "pods")
	t.Logf("the next %d pods that are bound hang", m.hung)
	m.steps++
}

// EditGroup changes a PodGroup.
func (m *machine) EditGroup(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return m.c.api.groups[j.key()] != nil })
	min := int32(rapid.IntRange(1, len(j.Sizes)).Draw(t, "minMember"))
	topology := m.topology(t, len(j.Sizes), min)
	m.i.count("PodGroups edited")
	t.Logf("PodGroup %s is edited: minMember %d, %v", j.Name, min, topology)
	m.c.EditGroup(j.Name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = min
		for _, key := range []string{
			podgroup.RequiredTopologyAnnotation, podgroup.PreferredTopologyAnnotation, podgroup.SliceRequiredTopologyAnnotation, podgroup.SliceSizeAnnotation,
		} {
			delete(group.Annotations, key)
		}
		if group.Annotations == nil {
			group.Annotations = map[string]string{}
		}
		maps.Copy(group.Annotations, topology)
	})
	m.follow(t)
}

// DeleteGroup deletes a PodGroup, or makes it.
func (m *machine) DeleteGroup(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return j.MinMember > 0 })
	if m.c.api.groups[j.key()] != nil {
		t.Logf("PodGroup %s is deleted", j.Name)
		m.c.DeleteGroup(j.Name)
	} else {
		t.Logf("PodGroup %s is made", j.Name)
		m.c.CreateGroup(j.Name)
	}
	m.follow(t)
}

// Ungate takes the gates off the pods of a Job.
func (m *machine) Ungate(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return j.Gated })
	t.Logf("%s loses its scheduling gates", j.Name)
	m.c.Ungate(j.Name)
	m.follow(t)
}
