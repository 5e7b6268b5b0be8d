package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// stage is a cluster of nodes named by their rack, with victims on them.
type stage struct {
	*Cluster
	t       *testing.T
	victims []Victim
}

func newStage(t *testing.T, names ...string) *stage {
	return &stage{Cluster: testCluster(t, nil, names...), t: t}
}

// keep books GPUs of nodes for somebody who stays.
func (s *stage) keep(gpus int64, nodes ...string) {
	for _, name := range nodes {
		id, _ := s.Node(name)
		s.Take(id, []Amount{{s.Resource("nvidia.com/gpu"), gpus}})
	}
}

// victim books GPUs for a victim, on each of some nodes.
func (s *stage) victim(name string, gpus int64, nodes ...string) *Victim {
	v := Victim{Tenant: Tenant{Name: name}, Pods: len(nodes)}
	for _, node := range nodes {
		id, ok := s.Node(node)
		if !ok {
			s.t.Fatalf("no node %s", node)
		}
		used := []Amount{{s.Resource("nvidia.com/gpu"), gpus}, {s.Resource("pods"), 1}}
		s.Take(id, used)
		v.On = append(v.On, Occupancy{id, used})
	}
	s.victims = append(s.victims, v)
	return &s.victims[len(s.victims)-1]
}

// preempts returns the names of the victims and the nodes of the members.
func (s *stage) preempts(d *Demand, v Verifier) (victims string, nodes []string) {
	s.t.Helper()
	p, e, err := s.Preempt(d, v, s.victims)
	if err != nil {
		s.t.Fatal(err)
	}
	if p == nil {
		return "refused: " + e.String(), nil
	}
	var names []string
	for _, i := range p.Victims {
		names = append(names, s.victims[i].Name)
	}
	for _, id := range p.Plan.Nodes {
		if id == NoNode {
			nodes = append(nodes, "")
		} else {
			nodes = append(nodes, s.NodeName(id))
		}
	}
	return strings.Join(names, " "), nodes
}

func TestPreempt(t *testing.T) {
	within := func(d *Demand, l Level) *Demand { d.Required = l; return d }
	for name, tc := range map[string]struct {
		nodes   []string
		set     func(s *stage)
		demand  func(s *stage) *Demand
		victims string
		on      []string
	}{
		"nobody goes if the gang fits": {
			nodes:  racks("r", 1, 3),
			set:    func(s *stage) { s.victim("a", 8, "r0/n0") },
			demand: func(s *stage) *Demand { return gang(s.Cluster, 8, 8) },
			on:     []string{"r0/n1", "r0/n2"},
		},
		"a free node and a freed one": {
			nodes:   racks("r", 1, 3),
			set:     func(s *stage) { s.victim("a", 8, "r0/n0"); s.keep(8, "r0/n1") },
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8, 8) },
			victims: "a",
			on:      []string{"r0/n0", "r0/n2"},
		},
		"free and freed room of one node": {
			nodes:   racks("r", 1, 1),
			set:     func(s *stage) { s.keep(2, "r0/n0"); s.victim("a", 3, "r0/n0"); s.victim("b", 2, "r0/n0") },
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 4) },
			victims: "a",
			on:      []string{"r0/n0"},
		},
		"one of ten": {
			nodes: racks("r", 2, 5),
			set: func(s *stage) {
				for i, node := range racks("r", 2, 5) {
					s.victim(fmt.Sprint("v", i), 8, node)
				}
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "v0",
			on:      []string{"r0/n0"},
		},
		"one large pod instead of ten small ones": {
			nodes: racks("r", 1, 2),
			set: func(s *stage) {
				for i := range 8 {
					s.victim(fmt.Sprint("small", i), 1, "r0/n0")
				}
				s.victim("large", 8, "r0/n1")
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "large",
			on:      []string{"r0/n1"},
		},
		"many of low priority before one of higher": {
			nodes: racks("r", 1, 2),
			set: func(s *stage) {
				for i := range 8 {
					s.victim(fmt.Sprint("low", i), 1, "r0/n0")
				}
				s.victim("high", 8, "r0/n1").Priority = 1
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "low0 low1 low2 low3 low4 low5 low6 low7",
			on:      []string{"r0/n0"},
		},
		"the one that loses the least work": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.victim("old", 8, "r0/n0").Lost = 300
				s.victim("young", 8, "r0/n1").Lost = 100
				s.victim("middle", 8, "r0/n2").Lost = 200
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "young",
			on:      []string{"r0/n1"},
		},
		"a required rack full of victims, although they are cheaper elsewhere": {
			nodes: racks("r", 3, 2),
			set: func(s *stage) {
				s.victim("a", 4, "r0/n0")
				s.victim("b", 4, "r0/n0")
				s.victim("c", 8, "r0/n1")
				s.keep(8, "r1/n0", "r2/n0")
				s.victim("d", 8, "r1/n1")
				s.victim("e", 8, "r2/n1")
			},
			demand:  func(s *stage) *Demand { return within(gang(s.Cluster, 8, 8), 1) },
			victims: "a b c",
			on:      []string{"r0/n0", "r0/n1"},
		},
		"the rack of the placed members, although another is cheaper": {
			nodes: racks("r", 2, 3),
			set: func(s *stage) {
				s.keep(8, "r0/n0")
				s.victim("a", 4, "r0/n1")
				s.victim("b", 4, "r0/n1")
				s.victim("c", 8, "r0/n2").Priority = 1
				s.keep(8, "r1/n0", "r1/n1")
				s.victim("d", 8, "r1/n2")
			},
			demand: func(s *stage) *Demand {
				d := within(gang(s.Cluster, 8), 1)
				at, _ := s.Node("r0/n0")
				d.Placed = []PlacedMember{{Node: at}}
				return d
			},
			victims: "a b",
			on:      []string{"r0/n1"},
		},
		"the rack in which fewer have to go": {
			nodes: racks("r", 2, 2),
			set: func(s *stage) {
				s.victim("a", 8, "r0/n0")
				s.victim("b", 8, "r0/n1")
				s.victim("c", 8, "r1/n1")
			},
			demand:  func(s *stage) *Demand { return within(gang(s.Cluster, 8, 8), 1) },
			victims: "c",
			on:      []string{"r1/n0", "r1/n1"},
		},
		"budgets last": {
			nodes: racks("r", 1, 2),
			set: func(s *stage) {
				s.victim("guarded", 8, "r0/n0").Violations = 1
				s.victim("a", 4, "r0/n1").Priority = 5
				s.victim("b", 4, "r0/n1").Lost = 1000
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "a b",
			on:      []string{"r0/n1"},
		},
		"a budget if nothing else works": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.victim("guarded twice", 8, "r0/n0").Violations = 2
				s.victim("guarded", 8, "r0/n1").Violations = 1
				s.victim("a", 8, "r0/n2").Priority = 5
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8, 8) },
			victims: "guarded a",
			on:      []string{"r0/n1", "r0/n2"},
		},
		"of those that violate as many budgets the lowest priority": {
			nodes: racks("r", 1, 2),
			set: func(s *stage) {
				v := s.victim("high", 8, "r0/n0")
				v.Violations, v.Priority = 1, 3
				for i := range 2 {
					v := s.victim(fmt.Sprint("low", i), 4, "r0/n1")
					v.Violations = 1 - i
				}
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "low0 low1",
			on:      []string{"r0/n1"},
		},
		"the surplus of a gang before its core": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.victim("core", 8, "r0/n0", "r0/n1").With = []int{1}
				s.victim("surplus", 8, "r0/n2")
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8) },
			victims: "surplus",
			on:      []string{"r0/n2"},
		},
		"the surplus with its core": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.victim("core", 4, "r0/n0").With = []int{1}
				s.victim("surplus", 4, "r0/n1")
				s.keep(4, "r0/n1")
				s.keep(8, "r0/n2")
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 6) },
			victims: "core surplus",
			on:      []string{"r0/n0"},
		},
		"one gang over two racks instead of three pods": {
			nodes: racks("r", 2, 2),
			set: func(s *stage) {
				s.victim("gang", 8, "r0/n0", "r1/n0")
				s.victim("a", 4, "r0/n1")
				s.victim("b", 4, "r0/n1")
				s.victim("c", 8, "r1/n1")
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 8, 8) },
			victims: "gang",
			on:      []string{"r0/n0", "r1/n0"},
		},
		"slices where their domains are nearly free": {
			nodes: racks("r", 3, 2),
			set: func(s *stage) {
				for r := range 3 {
					s.victim(fmt.Sprint("v", r), 8, fmt.Sprintf("r%d/n0", r))
				}
				s.victim("w", 8, "r1/n1")
			},
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, repeat(4, 8)...)
				d.Sets = []Set{{SliceSize: 2, SliceLevel: 1}}
				for i := range d.Members {
					d.Members[i].Slice = i / 2
				}
				return d
			},
			victims: "v0 v2",
			on:      []string{"r0/n0", "r0/n1", "r2/n0", "r2/n1"},
		},
		"the rest of a slice where it has begun, although it is cheaper elsewhere": {
			nodes: racks("r", 2, 2),
			set: func(s *stage) {
				s.keep(8, "r0/n0")
				s.victim("a", 8, "r0/n1").Priority = 3
				s.victim("b", 8, "r1/n0")
				s.victim("c", 8, "r1/n1")
			},
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, 8)
				d.Sets = []Set{{SliceSize: 2, SliceLevel: 1}}
				at, _ := s.Node("r0/n0")
				d.Placed = []PlacedMember{{Node: at}}
				return d
			},
			victims: "a",
			on:      []string{"r0/n1"},
		},
		"nobody for a slice that is torn": {
			nodes: racks("r", 2, 2),
			set:   func(s *stage) { s.keep(8, "r0/n0", "r1/n0"); s.victim("a", 8, "r0/n1"); s.victim("b", 8, "r1/n1") },
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, 8)
				d.Sets = []Set{{SliceSize: 3, SliceLevel: 1}}
				x, _ := s.Node("r0/n0")
				y, _ := s.Node("r1/n0")
				d.Placed = []PlacedMember{{Node: x}, {Node: y}}
				return d
			},
			victims: "refused: gang needs 1 more member beside 2 placed (with nvidia.com/gpu 8) in slices of 3 per rack, room for 0; short of nvidia.com/gpu: needed 8, free 0 of 32; of 4 nodes: 4 too little nvidia.com/gpu left",
		},
		"sets in racks of their own": {
			nodes: racks("r", 3, 2),
			set: func(s *stage) {
				s.keep(8, "r0/n0")
				s.victim("a", 8, "r1/n0")
				s.victim("b", 8, "r1/n1")
				s.victim("c", 8, "r2/n1")
			},
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, 8, 8, 4)
				d.Sets = []Set{{Required: 1}, {Required: 1}}
				d.Members[2].Set = 1
				return d
			},
			victims: "c",
			on:      []string{"r2/n0", "r2/n1", "r0/n1"},
		},
		"a launcher and workers": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.victim("a", 6, "r0/n0")
				s.victim("b", 7, "r0/n1")
				s.keep(6, "r0/n2")
			},
			demand:  func(s *stage) *Demand { return gang(s.Cluster, 2, 8) },
			victims: "a",
			on:      []string{"r0/n2", "r0/n0"},
		},
		"nobody goes for members beyond the minimum": {
			nodes: racks("r", 1, 4),
			set: func(s *stage) {
				s.victim("a", 8, "r0/n0")
				s.victim("b", 8, "r0/n1")
				s.victim("c", 8, "r0/n2")
			},
			demand:  func(s *stage) *Demand { d := gang(s.Cluster, 8, 8, 8); d.Min = 2; return d },
			victims: "a",
			on:      []string{"r0/n0", "r0/n3", ""},
		},
		"nobody goes if the gang would not fit": {
			nodes:   racks("r", 2, 2),
			set:     func(s *stage) { s.keep(8, "r0/n0", "r1/n0"); s.victim("a", 8, "r0/n1"); s.victim("b", 8, "r1/n1") },
			demand:  func(s *stage) *Demand { return within(gang(s.Cluster, 8, 8), 1) },
			victims: "refused: gang needs 2 members (with nvidia.com/gpu 8) within one rack; no rack has room for any member, for example r0; short there of nvidia.com/gpu: needed 16, free 0 of 16; of its 2 nodes: 2 too little nvidia.com/gpu left",
		},
		"minResources that no member requests": {
			nodes: racks("r", 1, 2),
			set: func(s *stage) {
				disk := s.Resource("example.com/disk")
				for i, name := range []string{"a", "b"} {
					s.SetNode(NodeID(i), []Amount{{s.Resource("nvidia.com/gpu"), 8}, {s.Resource("pods"), 9}, {disk, 4}}, nil)
					v := s.victim(name, 1, fmt.Sprint("r0/n", i))
					v.On[0].Used = append(v.On[0].Used, Amount{disk, int64(2 + i)})
					s.Take(NodeID(i), []Amount{{disk, int64(2 + i)}})
				}
			},
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, 2)
				d.MinResources = []Amount{{s.Resource("example.com/disk"), 6}}
				return d
			},
			victims: "b",
			on:      []string{"r0/n0"},
		},
		"minResources": {
			nodes: racks("r", 1, 3),
			set: func(s *stage) {
				s.keep(8, "r0/n0")
				s.victim("a", 8, "r0/n1").Lost = 1
				s.victim("b", 3, "r0/n2")
				s.victim("c", 3, "r0/n2").Lost = 2
			},
			demand: func(s *stage) *Demand {
				d := gang(s.Cluster, 2)
				d.MinResources = []Amount{{s.Resource("nvidia.com/gpu"), 5}}
				return d
			},
			victims: "b",
			on:      []string{"r0/n2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, tc.nodes...)
			tc.set(s)
			before := fmt.Sprint(s.free)
			victims, on := s.preempts(tc.demand(s), nil)
			if victims != tc.victims || !slices.Equal(on, tc.on) {
				t.Errorf("got %q on %v, want %q on %v", victims, on, tc.victims, tc.on)
			}
			if after := fmt.Sprint(s.free); after != before {
				t.Errorf("capacity changed from %s to %s", before, after)
			}
		})
	}
}

func TestPreemptLearnsFromRefusals(t *testing.T) {
	s := newStage(t, racks("r", 1, 4)...)
	s.victim("a", 8, "r0/n0")
	s.victim("b", 8, "r0/n1")
	s.victim("c", 8, "r0/n2").Lost = 1
	s.victim("d", 8, "r0/n3").Lost = 2
	v := &grumpy{c: s.Cluster, max: map[string]int{"r0/n0": 0, "r0/n2": 0}}
	if victims, on := s.preempts(gang(s.Cluster, 8, 8), v); victims != "b d" {
		t.Errorf("got %q on %v", victims, on)
	}
	if v.calls > 3 {
		t.Errorf("%d verifications for two bad nodes", v.calls)
	}
	v.max["r0/n1"] = 0
	if victims, _ := s.preempts(gang(s.Cluster, 8, 8), v); !strings.HasPrefix(victims, "refused") {
		t.Errorf("got %q on one node", victims)
	}
	if victims, _ := s.preempts(gang(s.Cluster, 8), contrary{}); !strings.HasPrefix(victims, "refused") {
		t.Errorf("got %q against every check", victims)
	}
}

// broken is a Verifier that fails.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Verify(*Demand, []NodeID) ([]Limit, error) { return nil, errBroken }

func TestPreemptPassesErrorsOn(t *testing.T) {
	s := newStage(t, racks("r", 1, 2)...)
	s.victim("a", 8, "r0/n0")
	s.keep(8, "r0/n1")
	gpu := s.Resource("nvidia.com/gpu")
	if _, _, err := s.Preempt(gang(s.Cluster, 8), broken{}, s.victims); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	if free := s.Free(0, gpu); free != 0 {
		t.Errorf("%d GPUs free after an error", free)
	}
	for want, victim := range map[string]Victim{
		"victims[0].On[0].Node: 7 is none of the 2 nodes":                   {On: []Occupancy{{7, nil}}},
		"victims[0].On[0].Used[0].Resource: there is no column 99":          {On: []Occupancy{{0, []Amount{{99, 1}}}}},
		"victims[0].On[0].Used[0]: nvidia.com/gpu -1 is negative":           {On: []Occupancy{{0, []Amount{{gpu, -1}}}}},
		"victims[0].With[0]: 3 is none of the 1 victims":                    {With: []int{3}},
		"victims[0]: Pods -1, Lost 0 and Violations 0 must not be negative": {Pods: -1},
		"victims[0]: Pods 0, Lost -5 and Violations 0 must not be negative": {Lost: -5},
		"victims[0]: Pods 0, Lost 0 and Violations -2 must not be negative": {Violations: -2},
	} {
		if _, _, err := s.Preempt(gang(s.Cluster, 8), nil, []Victim{victim}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, _, err := s.Preempt(&Demand{}, nil, nil); err == nil {
		t.Error("no error for no members")
	}
}

// The search for victims for a gang made to be slow would be long.
func TestPreemptNobodyForTooManyClasses(t *testing.T) {
	s := newStage(t, racks("r", 1, 2)...)
	s.victim("a", 8, "r0/n0")
	s.victim("b", 8, "r0/n1")
	for classes, want := range map[int]string{maxAdvised: "a", maxAdvised + 1: "refused"} {
		d := gang(s.Cluster, 8)
		d.Classes = slices.Repeat(d.Classes, classes)
		if victims, _ := s.preempts(d, nil); !strings.HasPrefix(victims, want) {
			t.Errorf("%d classes: got %q, want %q", classes, victims, want)
		}
	}
}

// A preemption stays valid while other gangs are planned.
func TestPreemptionsStayValid(t *testing.T) {
	s := newStage(t, racks("r", 1, 2)...)
	s.victim("a", 8, "r0/n0")
	p, _, _ := s.Preempt(gang(s.Cluster, 8, 8), nil, s.victims)
	before := fmt.Sprint(p)
	mustPlan(t, s.Cluster, gang(s.Cluster, 1), nil)
	_, _, _ = s.Preempt(gang(s.Cluster, 1, 1), nil, nil)
	if after := fmt.Sprint(p); after != before {
		t.Errorf("%s became %s", before, after)
	}
}
