package simulation

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is what kind of thing happened.
type Kind string

// What happens in a cluster.
const (
	// Submitted: the Object, a Job, came.
	Submitted Kind = "Submitted"
	// Withdrawn: the Object, a Job, was deleted with its PodGroup and pods.
	Withdrawn Kind = "Withdrawn"
	// Released: the scheduler lets Pods of one commit bind.
	Released Kind = "Released"
	// Bound: the Object, a pod, is bound to Node.
	Bound Kind = "Bound"
	// BindFailed: the Object, a pod, was not bound. Pods is that pod as the scheduler knew it.
	BindFailed Kind = "BindFailed"
	// Running: the Object, a pod, runs on Node.
	Running Kind = "Running"
	// Ended: the Object, a pod, ended with the phase Reason.
	Ended Kind = "Ended"
	// Deleting: the Object, a pod on Node, is being deleted.
	Deleting Kind = "Deleting"
	// Removed: the Object, a pod, is gone.
	Removed Kind = "Removed"
	// Evicted: the scheduler evicts the Object, a pod, from Node to make room for the gang For.
	Evicted Kind = "Evicted"
	// Changed: the PodGroup Object was changed by its user.
	Changed Kind = "Changed"
	// NodeChanged: Node was added, removed, lost, returned, cordoned or uncordoned, as Reason says.
	NodeChanged Kind = "NodeChanged"
	// Said: the scheduler published an event about the Object.
	Said Kind = "Said"
	// Reconciled: the PodGroup controller looked at the Object, a PodGroup.
	Reconciled Kind = "Reconciled"
	// Restarted: the scheduler was killed or started.
	Restarted Kind = "Restarted"
)

// Event is one thing that happened.
type Event struct {
	At     time.Time
	Kind   Kind
	Object types.NamespacedName
	Node   string
	Reason string
	Note   string
	Pods   []*corev1.Pod
	For    types.NamespacedName
}

// String says it in one line.
func (e Event) String() string {
	parts := []string{string(e.Kind)}
	if e.Object.Name != "" {
		parts = append(parts, e.Object.Name)
	}
	for _, pod := range e.Pods {
		if e.Object.Name == pod.Name {
			continue
		}
		parts = append(parts, pod.Name)
	}
	if e.Node != "" {
		parts = append(parts, "node "+e.Node)
	}
	if e.For.Name != "" {
		parts = append(parts, "for "+e.For.Name)
	}
	if e.Reason != "" {
		parts = append(parts, e.Reason)
	}
	if e.Note != "" {
		parts = append(parts, fmt.Sprintf("%q", e.Note))
	}
	return strings.Join(parts, " ")
}
