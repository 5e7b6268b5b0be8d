package gputopology

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// The simulated cluster: racks of nodes with 8 GPUs, and pods of 1, 2, 4 and 8 GPUs that come and go.
const (
	simulatedRacks, nodesPerRack = 4, 8
	gpusPerNode                  = 8
	steps                        = 10_000
	seeds                        = 5
	// load is how many GPUs the living pods would hold if all that came had found a place.
	load = simulatedRacks * nodesPerRack * gpusPerNode * 92 / 100
)

// mix is what the pods request, each size with an equal share of the GPUs.
var mix = planner.Mix{{Request: 1, Share: 8.0 / 15}, {Request: 2, Share: 4.0 / 15}, {Request: 4, Share: 2.0 / 15}, {Request: 8, Share: 1.0 / 15}}

// arrival is a pod of the simulation: how many GPUs, and for how many steps.
type arrival struct{ gpus, life int }

// arrivals draws one pod for every step. Lives are drawn so that the load is as wanted; they do not
// depend on where the pods go, so that all plugins see the same.
func arrivals(seed uint64) []arrival {
	random := rand.New(rand.NewPCG(seed, 2023))
	mean := 0.0
	for _, p := range mix {
		mean += float64(p.Request) * p.Share
	}
	out := make([]arrival, steps)
	for i := range out {
		draw := random.Float64()
		for _, p := range mix {
			if draw -= p.Share; draw < 0 || p.Request == gpusPerNode {
				out[i].gpus = int(p.Request)
				break
			}
		}
		out[i].life = 1 + int(random.ExpFloat64()*load/mean)
	}
	return out
}

// scorer is a plugin of the framework that scores nodes.
type scorer interface {
	fwk.PreScorePlugin
	fwk.ScorePlugin
}

// simulation is the cluster in the hands of one plugin.
type simulation struct {
	t      *testing.T
	scorer scorer
	nodes  []*framework.NodeInfo
	infos  []fwk.NodeInfo
	pods   map[int]fwk.NodeInfo
	random *rand.Rand
}

// outcome is what came of a simulation.
type outcome struct {
	share    float64 // of the free GPUs, how many a request of the mix cannot have, mean of all steps
	whole    float64 // nodes entirely free, mean of all steps
	turned   int     // pods turned away although as many GPUs were free in all
	hopeless int     // pods turned away because fewer GPUs were free in all
}

func (s *simulation) run(arrivals []arrival) outcome {
	var o outcome
	leaving := make([][]int, steps+1)
	free := simulatedRacks * nodesPerRack * gpusPerNode
	for step, a := range arrivals {
		for _, i := range leaving[step] {
			s.leave(i, arrivals[i].gpus)
			free += arrivals[i].gpus
		}
		switch {
		case s.arrive(step, a.gpus):
			free -= a.gpus
			if end := step + a.life; end < steps {
				leaving[end] = append(leaving[end], step)
			}
		case a.gpus <= free:
			o.turned++
		default:
			o.hopeless++
		}
		unallocatable := 0.0
		for _, n := range s.nodes {
			left := gpusPerNode - n.Requested.ScalarResources[stage.GPU]
			unallocatable += mix.Unallocatable(left)
			if left == gpusPerNode {
				o.whole++
			}
		}
		if free > 0 {
			o.share += unallocatable / float64(free)
		}
	}
	o.share /= steps
	o.whole /= steps
	return o
}

// arrive puts a pod on one of the nodes with the highest score, any of them as in kube-scheduler.
func (s *simulation) arrive(i, gpus int) bool {
	pod := stage.Pod(i, gpus).Obj()
	var feasible []fwk.NodeInfo
	for _, n := range s.nodes {
		if gpusPerNode-n.Requested.ScalarResources[stage.GPU] >= int64(gpus) {
			feasible = append(feasible, n)
		}
	}
	if len(feasible) == 0 {
		return false
	}
	ctx, state := context.Background(), framework.NewCycleState()
	if status := s.scorer.PreScore(ctx, state, pod, feasible); !status.IsSuccess() {
		s.t.Fatal(status)
	}
	var best []fwk.NodeInfo
	top := int64(-1)
	for _, n := range feasible {
		score, status := s.scorer.Score(ctx, state, pod, n)
		if !status.IsSuccess() {
			s.t.Fatal(status)
		}
		if score > top {
			best, top = best[:0], score
		}
		if score == top {
			best = append(best, n)
		}
	}
	chosen := best[s.random.IntN(len(best))]
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		s.t.Fatal(err)
	}
	chosen.AddPodInfo(info)
	s.pods[i] = chosen
	return true
}

func (s *simulation) leave(i, gpus int) {
	if err := s.pods[i].(*framework.NodeInfo).RemovePod(klog.Background(), stage.Pod(i, gpus).Obj()); err != nil {
		s.t.Fatal(err)
	}
	delete(s.pods, i)
}

// simulated is a fresh cluster for a plugin made by new.
func simulated(t *testing.T, seed uint64, newScorer func(framework.Framework) scorer) *simulation {
	var nodes []*corev1.Node
	for r := range simulatedRacks {
		for n := range nodesPerRack {
			nodes = append(nodes, stage.Node(fmt.Sprintf("r%d-n%d", r, n), gpusPerNode).Label("rack", fmt.Sprintf("r%d", r)).Obj())
		}
	}
	fw, infos := stage.NewFramework(t, nil, nodes...)
	slices.SortFunc(infos, func(a, b fwk.NodeInfo) int { return strings.Compare(a.Node().Name, b.Node().Name) })
	s := &simulation{t: t, scorer: newScorer(fw), infos: infos, pods: map[int]fwk.NodeInfo{}, random: rand.New(rand.NewPCG(seed, 1))}
	for _, info := range infos {
		s.nodes = append(s.nodes, info.(*framework.NodeInfo))
	}
	return s
}

// Pods of 1, 2, 4 and 8 GPUs come and go for 10,000 steps. Left free by this plugin are GPUs that more
// of the coming pods can use than those left by the in-tree plugin, told to pack or to spread by the
// very same GPUs. The measure is that of FGD ("Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent", USENIX ATC 2023).
func TestFewerGPUsAreUnallocatable(t *testing.T) {
	inTree := func(strategy schedconfig.ScoringStrategyType) func(framework.Framework) scorer {
		return func(fw framework.Framework) scorer {
			pl, err := noderesources.NewFit(t.Context(), &schedconfig.NodeResourcesFitArgs{ScoringStrategy: &schedconfig.ScoringStrategy{
				Type: strategy, Resources: []schedconfig.ResourceSpec{{Name: stage.GPU, Weight: 1}},
			}}, fw, feature.Features{})
			if err != nil {
				t.Fatal(err)
			}
			return pl.(scorer)
		}
	}
	plugins := []struct {
		name string
		new  func(framework.Framework) scorer
	}{
		{Name, func(fw framework.Framework) scorer { return newPlugin(t, fw, "topologyLevels: [rack]") }},
		{"NodeResourcesFit MostAllocated", inTree(schedconfig.MostAllocated)},
		{"NodeResourcesFit LeastAllocated", inTree(schedconfig.LeastAllocated)},
	}
	means := make([]outcome, len(plugins))
	var rows []string
	for seed := range uint64(seeds) {
		pods := arrivals(seed)
		for i, p := range plugins {
			o := simulated(t, seed, p.new).run(pods)
			rows = append(rows, fmt.Sprintf("| %s, seed %d | %.2f%% | %.2f | %d | %d |", p.name, seed, 100*o.share, o.whole, o.turned, o.hopeless))
			means[i].share += o.share / seeds
			means[i].whole += o.whole / seeds
			means[i].turned += o.turned
			means[i].hopeless += o.hopeless
		}
	}
	for i, p := range plugins {
		rows = append(rows, fmt.Sprintf("| %s, all | %.2f%% | %.2f | %d | %d |", p.name, 100*means[i].share, means[i].whole, means[i].turned, means[i].hopeless))
	}
	t.Logf("\n| | unallocatable share of the free GPUs | whole nodes | pods turned away by fragmentation | pods turned away for want of GPUs |\n|---|---|---|---|---|\n%s",
		strings.Join(rows, "\n"))
	for i, p := range plugins[1:] {
		if ours, other := means[0].share, means[i+1].share; ours >= other {
			t.Errorf("%s leaves %.2f%% unallocatable, ours %.2f%%", p.name, 100*other, 100*ours)
		}
	}
}
