package v1alpha1

// ConditionFinished is True once the group came to rest: its phase is Finished or Failed and no member is
// left to work. It turns False if members appear again, and is absent before the group first finished. The
// podgroup controller owns it.
const ConditionFinished = "Finished"

// Reasons of the Scheduled condition.
const (
	// ReasonScheduled: at least minMember members are bound or succeeded. The only reason with status True.
	ReasonScheduled = "Scheduled"

	// ReasonInvalidSpec: the group's spec makes no gang; the message names the field.
	ReasonInvalidSpec = "InvalidSpec"

	// ReasonWaitingForMembers: fewer than minMember members exist.
	ReasonWaitingForMembers = "WaitingForMembers"

	// ReasonSchedulingGated: enough members exist, but too many of them have scheduling gates.
	ReasonSchedulingGated = "SchedulingGated"

	// ReasonUnschedulable: the scheduler refuses the gang; the message is that of the Unschedulable condition.
	ReasonUnschedulable = "Unschedulable"

	// ReasonMixedSchedulers: the members that wait name different schedulers, none of which sees them all.
	ReasonMixedSchedulers = "MixedSchedulers"

	// ReasonScheduling: the gang is complete and the scheduler has not bound or refused it yet.
	ReasonScheduling = "Scheduling"

	// ReasonResting: the gang was released and is not planned before the time in the message. Also of Ready.
	ReasonResting = "Resting"

	// ReasonMembersFailed: the members failed and nothing is left to schedule.
	ReasonMembersFailed = "MembersFailed"
)

// Reasons of the Finished condition.
const (
	// ReasonSucceeded: at least minMember members succeeded.
	ReasonSucceeded = "Succeeded"

	// ReasonFailed: members failed before minMember of them succeeded.
	ReasonFailed = "Failed"

	// ReasonInProgress: members appeared after the group had finished.
	ReasonInProgress = "InProgress"

	// ReasonRendezvousLimit: too many rendezvous timed out, and the gang is not planned any more. Also of Scheduled
	// and Ready.
	ReasonRendezvousLimit = "RendezvousLimit"
)

// Reasons of the Ready condition.
const (
	// ReasonAssembling: no member has a node.
	ReasonAssembling = "Assembling"

	// ReasonMeeting: members have nodes and have not met yet. The only reason with status Unknown.
	ReasonMeeting = "Meeting"

	// ReasonMet: at least minMember members are ready or succeeded. The only reason with status True.
	ReasonMet = "Met"

	// ReasonRepairing: the gang met, and fewer than minMember members are ready now.
	ReasonRepairing = "Repairing"
)

// Reasons of the RendezvousTimedOut condition, beside ReasonMet, which goes with status False.
const (
	// ReasonMembersNotReady: the members had their places and too few of them became ready.
	ReasonMembersNotReady = "MembersNotReady"

	// ReasonMembersMissing: too few members had a place.
	ReasonMembersMissing = "MembersMissing"
)
