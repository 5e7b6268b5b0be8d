package coscheduling

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// maxPermitWait is the longest that the scheduling framework lets a pod wait at Permit.
const maxPermitWait = 15 * time.Minute

// maxProvisioningWindow is the longest that new nodes are held for a gang.
const maxProvisioningWindow = 24 * time.Hour

func (a *Args) provisioningWindow() time.Duration {
	return time.Duration(a.ProvisioningWindowSeconds) * time.Second
}

// maxRepairTimeout is the longest that room is kept for a replacement by default.
const maxRepairTimeout = 24 * time.Hour

// Args are the arguments of the Coscheduling plugin in a KubeSchedulerConfiguration:
//
//	pluginConfig:
//	- name: Coscheduling
//	  args:
//	    permitWaitingTimeSeconds: 60
//	    topologyLevels: [topology.kubernetes.io/zone, example.com/rack]
//
// or, with the labels that a cloud or a tool publishes,
//
//	topologyPreset: gke
//
// or, with another order of the queue,
//
//	queueOrder: FairShare
//	fairShare: {halfLifeSeconds: 86400}
//
// or, so that large gangs have their turn,
//
//	reservation: {afterSeconds: 1800}
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// PermitWaitingTimeSeconds is how long a gang that is planned may take until the last of its
	// members is reserved, in seconds, where the PodGroup sets no scheduleTimeoutSeconds. From 1 to
	// 900, the longest the framework allows, less a few seconds in which the gang is let go; 60 by
	// default.
	PermitWaitingTimeSeconds *int64 `json:"permitWaitingTimeSeconds,omitempty"`

	// ProvisioningWindowSeconds is for how long nodes that join the cluster one at a time are held for the first gang
	// in line that lacks room, in seconds, where the PodGroup has no annotation muster.dev/provisioning-window: up to
	// 86,400; 0, the default, for not at all.
	ProvisioningWindowSeconds int64 `json:"provisioningWindowSeconds,omitempty"`

	// QueueOrder is PriorityFIFO, the default, FairShare, or ShortestFirst.
	QueueOrder QueueOrder `json:"queueOrder,omitempty"`

	// FairShare may be set with the order of that name.
	FairShare *FairShareArgs `json:"fairShare,omitempty"`

	// RepairTimeoutSeconds is how long room is kept for the replacement of a member that a gang lost, in
	// seconds, where the PodGroup's annotation muster.dev/rendezvous-timeout sets no other time. From 0, for
	// nothing kept, to 86400; 600 by default.
	RepairTimeoutSeconds *int64 `json:"repairTimeoutSeconds,omitempty"`

	// Reservation says when room is reserved for a gang that waits; nil reserves nothing.
	Reservation *ReservationArgs `json:"reservation,omitempty"`

	// The levels by which a gang is kept together: it is put into the lowest domain that holds it.
	gangplan.LevelArgs `json:",inline"`
}

// decodeArgs reads the plugin's arguments, sets defaults and validates. A bad value is an error that
// names its field.
func decodeArgs(obj runtime.Object) (*Args, error) {
	args := &Args{}
	if err := gangplan.DecodeArgs(Name, obj, args); err != nil {
		return nil, err
	}
	if args.PermitWaitingTimeSeconds == nil {
		args.PermitWaitingTimeSeconds = ptr.To[int64](60)
	}
	if args.QueueOrder == "" {
		args.QueueOrder = PriorityFIFO
	}
	if args.RepairTimeoutSeconds == nil {
		args.RepairTimeoutSeconds = ptr.To[int64](600)
	}
	if err := args.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
	}
	return args, nil
}

func (a *Args) validate() field.ErrorList {
	var errs field.ErrorList
	if t, most := *a.PermitWaitingTimeSeconds, int64(maxPermitWait/time.Second); t < 1 || t > most {
		errs = append(errs, field.Invalid(field.NewPath("permitWaitingTimeSeconds"), t, fmt.Sprintf("must be from 1 to %d", most)))
	}
	if t, most := a.ProvisioningWindowSeconds, int64(maxProvisioningWindow/time.Second); t < 0 || t > most {
		errs = append(errs, field.Invalid(field.NewPath("provisioningWindowSeconds"), t, fmt.Sprintf("must be from 0 to %d", most)))
	}
	switch {
	case !slices.Contains(queueOrders, a.QueueOrder):
		errs = append(errs, field.NotSupported(field.NewPath("queueOrder"), a.QueueOrder, queueOrders))
	case a.QueueOrder != FairShare && a.FairShare != nil:
		errs = append(errs, field.Forbidden(field.NewPath("fairShare"), "only with queueOrder FairShare"))
	}
	errs = append(errs, a.FairShare.validate(field.NewPath("fairShare"))...)
	if t, most := *a.RepairTimeoutSeconds, int64(maxRepairTimeout/time.Second); t < 0 || t > most {
		errs = append(errs, field.Invalid(field.NewPath("repairTimeoutSeconds"), t, fmt.Sprintf("must be from 0 to %d", most)))
	}
	errs = append(errs, a.Reservation.validate(field.NewPath("reservation"))...)
	return append(errs, a.LevelArgs.Validate()...)
}
