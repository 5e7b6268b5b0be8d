package gangplan

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Absence is the cluster without some of its pods, as if those were gone: the model from the start, and from
// Show on also the cycle's snapshot, so that every plugin of the profile sees it. There is one at a time, and
// it must be ended before the cycle goes on.
type Absence struct {
	cluster *Cluster
	fw      framework.Framework
	away    map[types.UID]fwk.PodInfo
	order   []types.UID
	// shown is the snapshot while it lacks the pods, and before the nodes' entries in it as they were.
	shown  fwk.MutableSnapshotSharedLister
	before []fwk.NodeInfo
}

// BeginAbsence begins with all pods in their places.
func (c *Cluster) BeginAbsence(fw framework.Framework) *Absence {
	return &Absence{cluster: c, fw: fw, away: map[types.UID]fwk.PodInfo{}}
}

// Remove takes pods off their nodes. Those that are on none, or away already, are passed over.
func (a *Absence) Remove(ctx context.Context, pods []fwk.PodInfo) error {
	for _, info := range pods {
		pod := info.GetPod()
		node, known := a.cluster.Node(pod.Spec.NodeName)
		if _, away := a.away[pod.UID]; away || !known {
			continue
		}
		if a.shown != nil {
			if err := a.shown.RemovePod(klog.FromContext(ctx), pod, pod.Spec.NodeName); err != nil {
				return fmt.Errorf("leaving out pod %s: %w", klog.KObj(pod), err)
			}
		}
		a.cluster.Return(node, a.cluster.UsedBy(info))
		a.away[pod.UID] = info
		a.order = append(a.order, pod.UID)
	}
	return nil
}

// Restore puts pods back that were removed.
func (a *Absence) Restore(pods []fwk.PodInfo) error {
	for _, info := range pods {
		pod := info.GetPod()
		node, known := a.cluster.Node(pod.Spec.NodeName)
		if _, away := a.away[pod.UID]; !away || !known {
			continue
		}
		if a.shown != nil {
			if err := a.shown.AddPod(info, pod.Spec.NodeName); err != nil {
				return fmt.Errorf("putting back pod %s: %w", klog.KObj(pod), err)
			}
		}
		a.cluster.Take(node, a.cluster.UsedBy(info))
		delete(a.away, pod.UID)
	}
	return nil
}

// Show makes the cycle's snapshot lack the pods too. It copies the entry of every node, so that it is for
// when arithmetic has found something.
func (a *Absence) Show(ctx context.Context) error {
	if a.shown != nil {
		return nil
	}
	snapshot := a.fw.MutableSnapshotSharedLister()
	if snapshot == nil {
		return errors.New("the scheduler's snapshot cannot be changed for a trial")
	}
	if err := snapshot.StartMutations(); err != nil {
		return fmt.Errorf("leaving out pods: %w", err)
	}
	a.shown, a.before = snapshot, a.cluster.infoByID
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		return err
	}
	if len(infos) != len(a.cluster.ids) {
		return fmt.Errorf("leaving out pods: the snapshot has %d nodes, the model %d", len(infos), len(a.cluster.ids))
	}
	a.cluster.infoByID = make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		a.cluster.infoByID[a.cluster.ids[i]] = info
	}
	for _, uid := range a.order {
		info, away := a.away[uid]
		if !away {
			continue
		}
		if err := snapshot.RemovePod(klog.FromContext(ctx), info.GetPod(), info.GetPod().Spec.NodeName); err != nil {
			return fmt.Errorf("leaving out pod %s: %w", klog.KObj(info.GetPod()), err)
		}
	}
	return nil
}

// End puts everything back as it was.
func (a *Absence) End() error {
	var err error
	if a.shown != nil {
		err = a.shown.EndMutations()
		a.cluster.infoByID, a.shown = a.before, nil
	}
	for _, info := range a.away {
		if node, known := a.cluster.Node(info.GetPod().Spec.NodeName); known {
			a.cluster.Take(node, a.cluster.UsedBy(info))
		}
	}
	clear(a.away)
	return err
}

// UsedBy is all that a pod uses of its node, in columns of the model.
func (c *Cluster) UsedBy(info fwk.PodInfo) []planner.Amount {
	return append(c.Requests(info), c.singles.portsOf(info.GetPod())...)
}

// Holds reports whether all of the profile's plugins accept the members on these nodes, one after another, on
// the snapshot and model as they are.
func Holds(ctx context.Context, fw framework.Framework, c *Cluster, d *Demand, nodes []planner.NodeID) (bool, error) {
	if !d.exact {
		limits, err := (&verifier{ctx: ctx, fw: fw, cluster: c, demand: d}).Verify(&d.Demand, nodes)
		return err == nil && len(limits) == 0, err
	}
	t, err := newTrial(ctx, fw, c, d)
	if err != nil {
		return false, err
	}
	for member, node := range nodes {
		if node == planner.NoNode {
			continue
		}
		status, err := t.check(member, node)
		if err == nil && status == nil {
			status, err = t.put(member, node)
		}
		if err != nil || status != nil {
			return false, errors.Join(err, t.undo(0))
		}
	}
	return true, t.undo(0)
}

// PodOn returns a pod's entry on a node, nil if it is not there.
func (c *Cluster) PodOn(node string, uid types.UID) *corev1.Pod {
	id, known := c.Node(node)
	if !known {
		return nil
	}
	for _, info := range c.infoByID[id].GetPods() {
		if info.GetPod().UID == uid {
			return info.GetPod()
		}
	}
	return nil
}
