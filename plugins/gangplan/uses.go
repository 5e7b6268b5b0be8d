package gangplan

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// uses is what a member asks for besides a share of a node, as it was when the trial began.
//
// It decides how a trial may reserve for the member and give back again. What Reserve notes in the
// scheduler's memory, Unreserve drops without a look at whose it is:
//
//   - DynamicResources.Unreserve removes the pod from every claim that is allocated and reserved for
//     it in the API server, and drops the note of any allocation of its claims that is in flight. So it
//     is not asked about members with a claim that has an allocation, or one that another pod is just
//     making; the new allocations of such a member are dropped one by one.
//   - VolumeBinding.Unreserve drops the assumption of a volume that another pod made for a claim that
//     both use. So nothing is reserved for a member that shares a claim with a pod that has its place;
//     that pod's assumption is there to be seen.
type uses struct {
	// claims are the member's resource claims in the order of its spec, as far as they exist.
	claims []*resourcev1.ResourceClaim
	// unallocated are those of the claims to which devices are still to be allocated.
	unallocated []types.UID
	// allocated is set if one of the claims has devices, inFlight if one is just being given them.
	allocated, inFlight bool
	// extended is set if a device class stands for one of the extended resources that it requests.
	extended bool
	// volumes are the names of its volume claims. occupied is set if a pod with a place uses one.
	volumes  []string
	occupied bool
}

// alone reports whether the plugins judge the member by objects of its own.
func (u *uses) alone() bool { return len(u.claims) > 0 || len(u.volumes) > 0 || u.extended }

// reservable reports whether Reserve has something to note that can be taken back.
func (u *uses) reservable() bool {
	switch {
	case u.inFlight, u.occupied, u.extended && u.allocated:
		return false
	}
	return len(u.unallocated) > 0 || len(u.volumes) > 0 || u.extended
}

func usesOf(fw framework.Framework, info fwk.PodInfo) uses {
	var u uses
	pod := info.GetPod()
	if manager := fw.SharedDRAManager(); manager != nil {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if err != nil || name == nil {
				continue // DynamicResources says so better
			}
			claim, err := manager.ResourceClaims().Get(pod.Namespace, *name)
			if err != nil {
				continue
			}
			u.claims = append(u.claims, claim)
			switch {
			case claim.Status.Allocation != nil:
				u.allocated = true
			case manager.ResourceClaims().GetPendingAllocation(claim.UID) != nil:
				u.inFlight = true
			default:
				u.unallocated = append(u.unallocated, claim.UID)
			}
		}
		for name, value := range info.CalculateResource().Resource.GetScalarResources() {
			u.extended = u.extended || value > 0 && backedByDevices(fw, name)
		}
	}
	storage := fw.SnapshotSharedLister().StorageInfos()
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			u.volumes = append(u.volumes, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			u.volumes = append(u.volumes, ephemeral.VolumeClaimName(pod, v))
		default:
			continue
		}
		u.occupied = u.occupied || storage.IsPVCUsedByPods(pod.Namespace+"/"+u.volumes[len(u.volumes)-1])
	}
	return u
}

// backedByDevices reports whether a device class stands for an extended resource, so that a node without
// the resource may still provide it, through DynamicResources.
func backedByDevices(fw framework.Framework, name corev1.ResourceName) bool {
	manager := fw.SharedDRAManager()
	return manager != nil && schedutil.IsDRAExtendedResourceName(name) && manager.DeviceClassResolver().GetDeviceClass(name) != nil
}
