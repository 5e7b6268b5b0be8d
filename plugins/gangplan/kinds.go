package gangplan

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// kinds divides the members of a demand more finely than its classes: members of a kind are alike in
// all that any plugin looks at, so that a node's answer to one of them is its answer to all.
type kinds struct {
	n    int
	of   []int         // by member
	pods []*corev1.Pod // by member, to be shown to the plugins
	uses []uses        // by member
	// shares is set for members with a claim to be allocated that another member has too.
	shares []bool
	users  map[types.UID]int // of claims to be allocated
}

// kindKey is what makes a kind, beyond its class.
type kindKey struct {
	Class    int
	Affinity *corev1.Affinity
	Spread   []corev1.TopologySpreadConstraint
	Ports    []corev1.ContainerPort
	// Labels are those that the members' own rules ask about.
	Labels  map[string]string
	Claims  []claimKey
	Volumes []volumeKey
	Inline  []corev1.Volume
}

type claimKey struct {
	Shared     types.UID // "" if it is the member's own
	Spec       resourcev1.ResourceClaimSpec
	Allocation *resourcev1.AllocationResult
}

type volumeKey struct {
	Name string // "" if it is the member's own
	Spec corev1.PersistentVolumeClaimSpec
	Node string
}

func newKinds(fw framework.Framework, d *Demand) (*kinds, error) {
	n := len(d.Pods)
	k := &kinds{of: make([]int, n), pods: make([]*corev1.Pod, n), uses: make([]uses, n), shares: make([]bool, n)}
	volumeUsers := map[string]int{}
	k.users = map[types.UID]int{}
	for i := range d.Pods {
		k.uses[i] = usesOf(fw, d.Infos[i])
		for _, uid := range k.uses[i].unallocated {
			k.users[uid]++
		}
		for _, name := range k.uses[i].volumes {
			volumeUsers[name]++
		}
	}
	asked := askedLabels(d.Infos)
	known := map[string]int{}
	for i, pod := range d.Pods {
		k.shares[i] = slices.ContainsFunc(k.uses[i].claims, k.shared)
		k.pods[i] = pod
		if k.shares[i] {
			k.pods[i] = sharedLast(pod, &k.uses[i], k.shared)
		}
		key := kindKey{
			Class: d.Members[i].Class, Affinity: pod.Spec.Affinity, Spread: pod.Spec.TopologySpreadConstraints,
			Ports: schedutil.GetHostPorts(pod), Labels: pick(pod.Labels, asked),
		}
		for _, c := range k.uses[i].claims {
			ck := claimKey{Spec: c.Spec, Allocation: c.Status.Allocation}
			if k.shared(c) || ck.Allocation != nil {
				ck.Shared = c.UID
			}
			key.Claims = append(key.Claims, ck)
		}
		for _, name := range k.uses[i].volumes {
			key.Volumes = append(key.Volumes, volumeKeyOf(fw, pod.Namespace, name, volumeUsers[name] > 1))
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil && v.Ephemeral == nil && needsPlace(&v) {
				key.Inline = append(key.Inline, v)
			}
		}
		b, err := json.Marshal(key)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
		}
		kind, ok := known[string(b)]
		if !ok {
			kind = len(known)
			known[string(b)] = kind
		}
		k.of[i] = kind
	}
	k.n = len(known)
	return k, nil
}

// shared reports whether a claim is still to be allocated and used by more than one member.
func (k *kinds) shared(c *resourcev1.ResourceClaim) bool { return k.users[c.UID] > 1 }

// alone reports whether a member needs a cycle state of its own.
func (k *kinds) alone(member int) bool { return k.uses[member].alone() }

// sharedLast returns the pod with the claims that it shares behind its own. DynamicResources takes
// the allocations that it finds in flight for the last ones of those it has to note.
func sharedLast(pod *corev1.Pod, u *uses, shared func(*resourcev1.ResourceClaim) bool) *corev1.Pod {
	if len(u.claims) != len(pod.Spec.ResourceClaims) {
		return pod // some do not exist, and it cannot be placed
	}
	var own, others []corev1.PodResourceClaim
	for i, c := range u.claims {
		if shared(c) {
			others = append(others, pod.Spec.ResourceClaims[i])
		} else {
			own = append(own, pod.Spec.ResourceClaims[i])
		}
	}
	sorted := *pod
	sorted.Spec.ResourceClaims = append(own, others...)
	return &sorted
}

// volumeKeyOf describes a volume claim: what it asks for and, if it has one, its volume and node.
func volumeKeyOf(fw framework.Framework, namespace, name string, shared bool) volumeKey {
	claim, err := fw.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return volumeKey{Name: name}
	}
	key := volumeKey{Spec: claim.Spec, Node: claim.Annotations[volume.AnnSelectedNode]}
	if shared {
		key.Name = name
	}
	return key
}

// askedLabels are the keys of the labels that the members' rules about other pods ask for.
func askedLabels(infos []fwk.PodInfo) sets.Set[string] {
	keys := sets.New[string]()
	for _, info := range infos {
		for _, terms := range [][]fwk.AffinityTerm{info.GetRequiredAffinityTerms(), info.GetRequiredAntiAffinityTerms()} {
			for _, term := range terms {
				requirements, _ := term.Selector.Requirements()
				for _, r := range requirements {
					keys.Insert(r.Key())
				}
			}
		}
		for _, c := range info.GetPod().Spec.TopologySpreadConstraints {
			keys.Insert(c.MatchLabelKeys...)
			if c.LabelSelector == nil {
				continue
			}
			for key := range c.LabelSelector.MatchLabels {
				keys.Insert(key)
			}
			for _, r := range c.LabelSelector.MatchExpressions {
				keys.Insert(r.Key)
			}
		}
	}
	return keys
}
