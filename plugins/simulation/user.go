package simulation

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Submit makes a Job, and its PodGroup if it is to have one. The Job makes its pods as MakePod is done.
func (c *Cluster) Submit(spec Job) {
	if c.jobs[spec.Name] != nil {
		panic(fmt.Sprintf("simulation: Job %s exists", spec.Name))
	}
	n := len(spec.Sizes)
	c.submitted++
	j := &job{order: c.submitted, Job: spec, uid: types.UID("job-" + c.api.nextVersion()), made: make([]int, n), live: make([]string, n), done: sets.New[int]()}
	c.jobs[spec.Name] = j
	c.names = append(c.names, spec.Name)
	c.lacks(j)
	c.tell(Event{Kind: Submitted, Object: j.key()})
	if spec.Disruptions != nil {
		c.api.createBudget(j.budget())
	}
	if !spec.WithoutGroup {
		c.CreateGroup(spec.Name)
	}
}

// CreateGroup makes the PodGroup of a Job, if the Job has a gang and the PodGroup does not exist.
func (c *Cluster) CreateGroup(name string) {
	j := c.jobs[name]
	if j == nil || j.MinMember == 0 {
		return
	}
	if c.options.Native {
		if c.api.native[j.key()] == nil {
			c.api.createNative(j.native())
		}
	} else if c.api.groups[j.key()] == nil {
		c.api.createGroup(j.group())
	}
}

// DeleteGroup deletes the PodGroup of a Job.
func (c *Cluster) DeleteGroup(name string) {
	if j := c.jobs[name]; j != nil && (c.api.deleteGroup(j.key()) || c.api.deleteNative(j.key())) {
		c.tell(Event{Kind: Changed, Object: j.key(), Reason: "Deleted"})
	}
}

// EditGroup changes a PodGroup as its user would.
func (c *Cluster) EditGroup(name string, change func(*v1alpha1.PodGroup)) {
	key := types.NamespacedName{Namespace: Namespace, Name: name}
	if c.api.updateGroup(key, "", change) {
		c.tell(Event{Kind: Changed, Object: key, Reason: "Edited"})
	}
}

// Ungate takes the scheduling gates off the pods of a Job.
func (c *Cluster) Ungate(name string) {
	j := c.jobs[name]
	if j == nil {
		return
	}
	j.Gated = false
	for _, pod := range j.live {
		c.api.updatePod(types.NamespacedName{Namespace: Namespace, Name: pod}, "", func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil })
	}
}

// Withdraw deletes a Job with its PodGroup and its pods.
func (c *Cluster) Withdraw(name string) {
	j := c.jobs[name]
	if j == nil {
		return
	}
	delete(c.jobs, name)
	if i := slices.Index(c.names, name); i >= 0 {
		c.names = slices.Delete(c.names, i, i+1)
	}
	c.tell(Event{Kind: Withdrawn, Object: j.key()})
	c.api.deleteGroup(j.key())
	c.api.deleteBudget(j.key())
	c.api.deleteNative(j.key())
	for _, pod := range slices.Sorted(maps.Keys(c.api.owned[j.uid])) {
		c.DeletePod(pod)
	}
}

// DeletePod deletes a pod.
func (c *Cluster) DeletePod(name string) {
	c.api.deletePod(types.NamespacedName{Namespace: Namespace, Name: name}, "")
}

// EndPod ends a pod that is on a node, with the phase Succeeded or Failed. It reports whether it did.
func (c *Cluster) EndPod(name string, phase corev1.PodPhase) bool {
	key := types.NamespacedName{Namespace: Namespace, Name: name}
	pod := c.api.pods[key]
	return pod != nil && c.endPod(key, pod.UID, phase)
}
