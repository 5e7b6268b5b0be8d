package coscheduling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// claimTimeout bounds the requests that allocate or free one claim.
const claimTimeout = 30 * time.Second

// allocate gives claims that members of a gang share their devices before any of the members is
// reserved. DynamicResources does so when the first user of a claim binds and keeps all others waiting
// until then, whereas no member of a gang binds before all of them are reserved. The devices are noted
// as taken at once; the gang is planned again, around what was allocated, when the API server has it.
// It returns what the members are told meanwhile.
func (pl *Coscheduling) allocate(ctx context.Context, key types.NamespacedName, allocations []gangplan.Allocation) (why string, err error) {
	tracker := pl.handle.SharedDRAManager().ResourceClaims()
	var names []string
	for i, a := range allocations {
		claim := a.Claim.DeepCopy()
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
		}
		claim.Status.Allocation = a.Result
		if err := tracker.SignalClaimPendingAllocation(claim.UID, claim); err != nil {
			for _, b := range allocations[:i] {
				tracker.MaybeRemoveClaimPendingAllocation(b.Claim.UID, true)
			}
			return "", fmt.Errorf("allocating resource claim %s: %w", klog.KObj(claim), err)
		}
		names = append(names, claim.Name)
	}
	logger := klog.FromContext(ctx)
	pl.background(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
		defer cancel()
		failed := false
		for _, a := range allocations {
			claim, err := pl.writeAllocation(ctx, a)
			if err == nil {
				err = tracker.AssumeClaimAfterAPICall(claim)
			}
			tracker.MaybeRemoveClaimPendingAllocation(a.Claim.UID, true)
			if err != nil {
				failed = true
				logger.Error(err, "Allocating a resource claim that members of a gang share", "podGroup", key, "resourceClaim", klog.KObj(a.Claim))
			}
		}
		if failed {
			pl.clock.AfterFunc(firstRetry, func() { pl.activateRepresentative(logger, key) })
			return
		}
		pl.activateRepresentative(logger, key)
	})
	return "devices are being allocated to resource claims that members share: " + strings.Join(names, ", "), nil
}

// tooManyUsers says which claim more members share than can use one, or returns "".
func tooManyUsers(allocations []gangplan.Allocation) string {
	for _, a := range allocations {
		if n := len(a.Users); n > resourcev1.ResourceClaimReservedForMaxSize {
			return fmt.Sprintf("resource claim %q is shared by %d members, and at most %d pods can use one", a.Claim.Name, n, resourcev1.ResourceClaimReservedForMaxSize)
		}
	}
	return ""
}

// writeAllocation stores an allocation, with the members that share it as users, if the claim is still
// as it was when it was planned.
func (pl *Coscheduling) writeAllocation(ctx context.Context, a gangplan.Allocation) (*resourcev1.ResourceClaim, error) {
	claims := pl.handle.ClientSet().ResourceV1().ResourceClaims(a.Claim.Namespace)
	claim := a.Claim.DeepCopy()
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
		var err error
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return nil, err
		}
	}
	claim.Status.Allocation = a.Result
	for _, pod := range a.Users {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
	}
	return claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{FieldManager: fieldManager})
}

// sweepLater takes devices back, after a while, that a gang holds that cannot be planned: it lost members or
// its PodGroup after its claims were allocated, maybe under a scheduler that died then.
func (pl *Coscheduling) sweepLater(logger klog.Logger, key types.NamespacedName) {
	if pl.handle.SharedDRAManager() == nil || !pl.gangs.sweep(key) {
		return
	}
	pl.clock.AfterFunc(firstRetry, func() {
		pl.gangs.swept(key)
		if pl.members.Generation(key) == 0 {
			pl.gangs.forget(key)
			return
		}
		counts := pl.members.Get(key)
		if pl.incomplete(key) == "" || counts.Bound+counts.Finished > 0 || len(pl.gangs.placedNodes(key)) > 0 {
			return
		}
		waiting := slices.DeleteFunc(pl.waitingPods(key, func(m *podgroup.Member) bool { return m.SchedulerName == pl.handle.ProfileName() }),
			func(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) == 0 })
		switch {
		case len(waiting) == 0:
		case !pl.leads.Load():
			pl.sweepLater(logger, key) // the scheduler that leads does so, until this one does
		default:
			pl.free(logger, key, waiting)
		}
	})
}

// free takes the devices back from claims of a gang without a place that nobody else uses, so that a gang
// that does not start holds none. DynamicResources would do so for single pods, in its PostFilter. The gang
// is not planned until that is done.
func (pl *Coscheduling) free(logger klog.Logger, key types.NamespacedName, waiting []*corev1.Pod) {
	manager := pl.handle.SharedDRAManager()
	if manager == nil {
		return
	}
	users := sets.New[types.UID]()
	for _, pod := range waiting {
		users.Insert(pod.UID)
	}
	seen := sets.New[types.UID]()
	var idle []*resourcev1.ResourceClaim
	for _, pod := range waiting {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if err != nil || name == nil {
				continue
			}
			claim, err := manager.ResourceClaims().Get(pod.Namespace, *name)
			if err == nil && manager.ResourceClaims().GetPendingAllocation(claim.UID) != nil {
				return // the gang's claims are just being allocated
			}
			if err != nil || claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0 || seen.Has(claim.UID) {
				continue
			}
			seen.Insert(claim.UID)
			if !slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return !users.Has(r.UID) }) {
				idle = append(idle, claim)
			}
		}
	}
	if len(idle) == 0 {
		return
	}
	pl.gangs.freeing(key, 1)
	pl.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
		defer cancel()
		failed := false
		for _, claim := range idle {
			freed := claim.DeepCopy()
			freed.Status.Allocation, freed.Status.ReservedFor, freed.Status.Devices = nil, nil, nil
			freed, err := pl.handle.ClientSet().ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, freed, metav1.UpdateOptions{FieldManager: fieldManager})
			if err == nil {
				err = manager.ResourceClaims().AssumeClaimAfterAPICall(freed)
			}
			if err != nil {
				failed = true
				logger.Error(err, "Freeing a resource claim of a gang without a place", "podGroup", key, "resourceClaim", klog.KObj(claim))
			}
		}
		pl.gangs.freeing(key, -1)
		if failed && pl.incomplete(key) != "" {
			pl.sweepLater(logger, key)
		}
		pl.activateRepresentative(logger, key)
	})
}
