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
)
