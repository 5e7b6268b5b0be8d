package gangplan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/muster-sched/muster/podgroup/planner"
)

// trialKey marks the cycle state of a trial.
const trialKey fwk.StateKey = "muster.dev/trial"

type trialMark struct{}

func (trialMark) Clone() fwk.StateData { return trialMark{} }

func newTrialState() *framework.CycleState {
	state := framework.NewCycleState()
	state.Write(trialKey, trialMark{})
	return state
}

// IsTrial reports whether a plugin is asked while a gang is being planned, where a plugin that plans
// gangs itself has to stand aside.
func IsTrial(state fwk.CycleState) bool {
	_, err := state.Read(trialKey)
	return err == nil
}

// assumer is the part of the scheduler's snapshot that the native gang cycle uses for the same end:
// pods are put on nodes in the snapshot alone, and taken off again, the last one first.
type assumer interface {
	AssumePod(*framework.PodInfo) error
	ForgetPod(klog.Logger, *corev1.Pod) error
}

// trial is the scheduling cycle's snapshot with some members in place, as the profile's plugins would
// see it after those had been scheduled. It must be undone before the cycle goes on.
type trial struct {
	ctx      context.Context
	fw       framework.Framework
	snapshot assumer
	cluster  *Cluster
	demand   *Demand
	kinds    *kinds
	// states after PreFilter, by kind, kept in step with the members in place; nil until needed.
	states []*prepared
	// alone is the state of a member that shares its state with no other, until a member is put or
	// taken back.
	alone *prepared
	// group lets members of one trial share claims that are allocated in it.
	group  *framework.CycleState
	placed []placedMember
	// checks counts the runs of the Filter plugins.
	checks int
}

// prepared is a cycle state after PreFilter, which stands for all members of a kind.
type prepared struct {
	member  int
	state   *framework.CycleState
	allowed *fwk.PreFilterResult
	refused *fwk.Status
	// shown is set when a member was put on a node since.
	shown bool
}

type placedMember struct {
	member int
	node   planner.NodeID
	info   *framework.PodInfo
	held   *reservation
}

func newTrial(ctx context.Context, fw framework.Framework, c *Cluster, d *Demand) (*trial, error) {
	snapshot, ok := fw.SnapshotSharedLister().(assumer)
	if !ok {
		return nil, fmt.Errorf("the scheduler's snapshot, a %T, cannot hold members for a trial", fw.SnapshotSharedLister())
	}
	k, err := newKinds(fw, d)
	if err != nil {
		return nil, err
	}
	return &trial{
		ctx: ctx, fw: fw, snapshot: snapshot, cluster: c, demand: d,
		kinds: k, states: make([]*prepared, k.n), group: framework.NewCycleState(),
	}, nil
}

// prepare runs the PreFilter plugins for a member, unless a state for it is at hand.
func (t *trial) prepare(member int) (*prepared, error) {
	kind, alone := t.kinds.of[member], t.kinds.alone(member)
	if alone && t.alone != nil && t.alone.member == member {
		return t.alone, nil
	}
	if !alone && t.states[kind] != nil {
		return t.states[kind], nil
	}
	p := &prepared{member: member, state: newTrialState()}
	if t.kinds.shares[member] {
		p.state.SetPodGroupSchedulingCycle(t.group)
	}
	pod := t.kinds.pods[member]
	allowed, status, _ := t.fw.RunPreFilterPlugins(t.ctx, p.state, pod)
	if status.Code() == fwk.Error {
		return nil, fmt.Errorf("placing pod %s: %w", klog.KObj(pod), status.AsError())
	}
	p.allowed = allowed
	if !status.IsSuccess() {
		p.refused = status
	}
	if alone {
		t.alone = p
	} else {
		t.states[kind] = p
	}
	return p, nil
}

// check asks the Filter plugins whether a node takes a member beside those in place. It returns nil if
// it does.
func (t *trial) check(member int, node planner.NodeID) (*fwk.Status, error) {
	p, err := t.prepare(member)
	if err != nil {
		return nil, err
	}
	info := t.cluster.infoByID[node]
	if p.shown && p.spreads() && len(t.fw.NominatedPodsForNode(info.Node().Name)) > 0 {
		t.states[t.kinds.of[member]] = nil // the framework shows them to the state
		if p, err = t.prepare(member); err != nil {
			return nil, err
		}
	}
	switch {
	case p.refused != nil:
		return p.refused, nil
	case !p.allowed.AllNodes() && !p.allowed.NodeNames.Has(info.Node().Name):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, causeSelector).WithPlugin(names.NodeAffinity), nil
	}
	t.checks++
	status := t.fw.RunFilterPluginsWithNominatedPods(t.ctx, p.state, t.kinds.pods[member], info)
	if status.Code() == fwk.Error {
		return nil, fmt.Errorf("placing pod %s on node %s: %w", klog.KObj(t.kinds.pods[member]), info.Node().Name, status.AsError())
	}
	if status.IsSuccess() {
		return nil, t.ctx.Err()
	}
	return status, nil
}

// put puts a member on a node that takes it. It returns why the member could not reserve what it
// needs there, if so; the member is not in place then.
func (t *trial) put(member int, node planner.NodeID) (*fwk.Status, error) {
	p, err := t.prepare(member)
	if err != nil {
		return nil, err
	}
	assumed := *t.kinds.pods[member]
	assumed.Spec.NodeName = t.cluster.NodeName(node)
	info, err := framework.NewPodInfo(&assumed)
	if err != nil {
		return nil, fmt.Errorf("placing pod %s: %w", klog.KObj(&assumed), err)
	}
	if err := t.snapshot.AssumePod(info); err != nil {
		return nil, fmt.Errorf("placing pod %s: %w", klog.KObj(&assumed), err)
	}
	requests := t.demand.Classes[t.demand.Members[member].Class].Requests
	t.cluster.Take(node, requests)
	t.placed = append(t.placed, placedMember{member: member, node: node, info: info})
	held, status := t.reserve(p, member, &assumed)
	t.placed[len(t.placed)-1].held = held
	if !status.IsSuccess() {
		if err := t.undo(len(t.placed) - 1); err != nil {
			return nil, err
		}
		if status.Code() == fwk.Error {
			return nil, fmt.Errorf("placing pod %s: %w", klog.KObj(&assumed), status.AsError())
		}
		return status, nil
	}
	t.alone = nil
	return nil, t.show(info, node)
}

// spreads reports whether a state keeps a spread.
func (p *prepared) spreads() bool {
	return p.refused == nil && !p.state.GetSkipFilterPlugins().Has(names.PodTopologySpread)
}

// show brings the states at hand up to a member that was put on a node. PodTopologySpread remembers only two of the
// emptiest domains, any two if more are as empty, and loses sight of the minimum when both fill up: a state goes when
// the emptiest domain of a spread is another, or has more pods. As long as it is the same, it is the emptiest.
func (t *trial) show(added *framework.PodInfo, node planner.NodeID) error {
	repels := len(added.GetRequiredAntiAffinityTerms()) > 0
	for kind, p := range t.states {
		if p == nil {
			continue
		}
		if p.refused != nil || repels && p.state.GetSkipFilterPlugins().Has(names.InterPodAffinity) {
			t.states[kind] = nil // what was of no concern may be now
			continue
		}
		p.shown = true
		var before []emptiest
		if p.spreads() {
			before, _ = emptiestOf(p.state)
		}
		pod := t.kinds.pods[p.member]
		if s := t.fw.RunPreFilterExtensionAddPod(t.ctx, p.state, pod, added, t.cluster.infoByID[node]); !s.IsSuccess() {
			return fmt.Errorf("placing pod %s: %w", klog.KObj(pod), s.AsError())
		}
		if !p.spreads() {
			continue
		}
		if after, known := emptiestOf(p.state); !known || !slices.Equal(after, before) {
			t.states[kind] = nil
		}
	}
	return nil
}

// undo takes back the members that were put since mark of them were in place, the last one first.
func (t *trial) undo(mark int) error {
	if mark == len(t.placed) {
		return nil
	}
	logger := klog.FromContext(t.ctx)
	var errs []error // one that cannot be taken back must not leave the others there
	for _, p := range slices.Backward(t.placed[mark:]) {
		t.unreserve(p.held)
		t.cluster.Return(p.node, t.demand.Classes[t.demand.Members[p.member].Class].Requests)
		if err := t.snapshot.ForgetPod(logger, p.info.Pod); err != nil {
			errs = append(errs, fmt.Errorf("taking back pod %s: %w", klog.KObj(p.info.Pod), err))
		}
	}
	t.placed = t.placed[:mark]
	t.alone = nil
	clear(t.states)
	return errors.Join(errs...)
}
