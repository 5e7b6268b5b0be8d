package gangplan

import fwk "k8s.io/kube-scheduler/framework"

// The events of nodes and pods that a Watch is asked about.
var (
	NodeEvent = fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeDeclaredFeature}
	PodEvent  = fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown}
)

// DeviceClassEvent is for any gang that was refused: a class may come to stand for an extended resource that
// no node has.
var DeviceClassEvent = fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Add | fwk.Update}

// PlacedEvent is of pods that come to nodes or are relabelled there.
var PlacedEvent = fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Add | fwk.UpdatePodLabel}

// FilterEvents are the events that may let in a gang which other plugins' filters had a part in refusing,
// each with the given hint. PlacedEvent is one more, and by far the most frequent.
func FilterEvents(hint fwk.QueueingHintFn) []fwk.ClusterEventWithHint {
	var events []fwk.ClusterEventWithHint
	for _, event := range []fwk.ClusterEvent{
		{Resource: fwk.Node, ActionType: fwk.Delete},
		{Resource: fwk.PersistentVolumeClaim, ActionType: fwk.Add | fwk.Update},
		{Resource: fwk.PersistentVolume, ActionType: fwk.Add | fwk.Update},
		{Resource: fwk.StorageClass, ActionType: fwk.Add | fwk.Update},
		{Resource: fwk.CSINode, ActionType: fwk.Add | fwk.Update},
		{Resource: fwk.CSIDriver, ActionType: fwk.Update},
		{Resource: fwk.VolumeAttachment, ActionType: fwk.Delete},
		{Resource: fwk.CSIStorageCapacity, ActionType: fwk.Add | fwk.Update},
		{Resource: fwk.ResourceClaim, ActionType: fwk.Add | fwk.Update | fwk.Delete},
		{Resource: fwk.ResourceSlice, ActionType: fwk.Add | fwk.Update},
	} {
		events = append(events, fwk.ClusterEventWithHint{Event: event, QueueingHintFn: hint})
	}
	return events
}
