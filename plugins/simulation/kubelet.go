package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How long things take on a node.
const (
	startTime = 2 * time.Second
	stopTime  = 5 * time.Second
	// nodeGone is how long the pods of a node stay that was deleted.
	nodeGone = 40 * time.Second
	// toleration is how long pods stay on a node that cannot be reached.
	toleration = 5 * time.Minute
)

// follow is what the kubelets do about a change of a pod.
func (c *Cluster) follow(old, pod *corev1.Pod) {
	bound := pod.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "")
	ends := pod.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil)
	key, uid := nameOf(pod), pod.UID
	switch {
	case ends:
		c.tell(Event{Kind: Deleting, Object: key, Node: pod.Spec.NodeName})
		c.clock.AfterFunc(c.stopTime(pod), func() { c.stopPod(key, uid) })
	case bound:
		wait := startTime
		if c.options.Delays != nil {
			wait += c.options.Delays(pod)
		}
		c.clock.AfterFunc(wait, func() { c.startPod(key, uid) })
	}
}

// stopTime is how long a pod takes to end.
func (c *Cluster) stopTime(pod *corev1.Pod) time.Duration {
	if j := c.jobOf(pod); j != nil && j.StopTime > 0 {
		return j.StopTime
	}
	return stopTime
}

// startPod makes a pod run, if its node works and has room for it.
func (c *Cluster) startPod(key types.NamespacedName, uid types.UID) {
	pod := c.api.pods[key]
	if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending || !c.works(pod.Spec.NodeName) {
		return
	}
	if !c.starts(pod) {
		return
	}
	now := metav1.NewTime(c.clock.Now()).Rfc3339Copy()
	c.api.updatePod(key, uid, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.StartTime = &now
		setPodCondition(pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, now)
	})
	c.tell(Event{Kind: Running, Object: key, Node: pod.Spec.NodeName})
	if j := c.jobOf(pod); j != nil && j.RunTime > 0 {
		c.clock.AfterFunc(j.RunTime, func() { c.endPod(key, uid, corev1.PodSucceeded) })
	}
}

// endPod ends a pod that runs.
func (c *Cluster) endPod(key types.NamespacedName, uid types.UID, phase corev1.PodPhase) bool {
	pod := c.api.pods[key]
	if pod == nil || pod.UID != uid || pod.Spec.NodeName == "" || !c.works(pod.Spec.NodeName) ||
		pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
		return false
	}
	now := metav1.NewTime(c.clock.Now())
	c.api.updatePod(key, uid, func(pod *corev1.Pod) {
		pod.Status.Phase = phase
		setPodCondition(pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}, now)
	})
	c.tell(Event{Kind: Ended, Object: key, Node: pod.Spec.NodeName, Reason: string(phase)})
	return true
}

// stopPod takes a pod away that is being deleted, once its node works.
func (c *Cluster) stopPod(key types.NamespacedName, uid types.UID) {
	if pod := c.api.pods[key]; pod != nil && pod.UID == uid && c.works(pod.Spec.NodeName) {
		c.removePod(key, uid)
	}
}

func (c *Cluster) removePod(key types.NamespacedName, uid types.UID) {
	if c.api.removePod(key, uid) {
		c.tell(Event{Kind: Removed, Object: key})
	}
}

// works reports whether the kubelet of a node does anything.
func (c *Cluster) works(node string) bool { return c.api.nodes[node] != nil && !c.lost.Has(node) }

// on returns the pods on a node by name.
func (c *Cluster) on(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range c.api.list((*corev1.Pod)(nil)) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// LoseNode cuts a node off. Its pods are deleted when their toleration is over, and are gone when it is back or deleted.
func (c *Cluster) LoseNode(name string) {
	if !c.works(name) {
		return
	}
	c.lost.Insert(name)
	c.api.updateNode(name, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	})
	c.tell(Event{Kind: NodeChanged, Node: name, Reason: "Lost"})
	for _, pod := range c.on(name) {
		key, uid := nameOf(pod), pod.UID
		c.clock.AfterFunc(toleration, func() {
			if c.lost.Has(name) {
				c.api.deletePod(key, uid)
			}
		})
	}
}

// ReturnNode brings a lost node back.
func (c *Cluster) ReturnNode(name string) {
	if !c.lost.Has(name) {
		return
	}
	c.lost.Delete(name)
	c.api.updateNode(name, func(node *corev1.Node) { node.Spec.Taints = nil })
	c.tell(Event{Kind: NodeChanged, Node: name, Reason: "Returned"})
	for _, pod := range c.on(name) {
		key, uid := nameOf(pod), pod.UID
		if pod.DeletionTimestamp != nil {
			c.clock.AfterFunc(c.stopTime(pod), func() { c.stopPod(key, uid) })
		} else if pod.Status.Phase == corev1.PodPending {
			c.clock.AfterFunc(startTime, func() { c.startPod(key, uid) })
		} else if j := c.jobOf(pod); j != nil && j.RunTime > 0 && pod.Status.Phase == corev1.PodRunning {
			rest := pod.Status.StartTime.Add(j.RunTime).Sub(c.clock.Now())
			c.clock.AfterFunc(rest, func() { c.endPod(key, uid, corev1.PodSucceeded) })
		}
	}
}

// AddNode adds a node with so many GPUs.
func (c *Cluster) AddNode(node *corev1.Node) {
	c.api.createNode(node)
	c.tell(Event{Kind: NodeChanged, Node: node.Name, Reason: "Added"})
}

// RemoveNode deletes a node. Its pods are gone after a while.
func (c *Cluster) RemoveNode(name string) {
	if !c.api.deleteNode(name) {
		return
	}
	c.lost.Delete(name)
	c.tell(Event{Kind: NodeChanged, Node: name, Reason: "Removed"})
	for _, pod := range c.on(name) {
		key, uid := nameOf(pod), pod.UID
		c.clock.AfterFunc(nodeGone, func() { c.removePod(key, uid) })
	}
}

// Cordon makes a node take no pods, or take them again.
func (c *Cluster) Cordon(name string, cordoned bool) {
	if c.api.updateNode(name, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned }) {
		c.tell(Event{Kind: NodeChanged, Node: name, Reason: map[bool]string{true: "Cordoned", false: "Uncordoned"}[cordoned]})
	}
}
