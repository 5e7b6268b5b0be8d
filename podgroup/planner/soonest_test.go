package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// soonestScene is who uses the GPUs of the nodes of a cluster, in words: "r0/n0": "a@3=4 b=2" is a gang a that ends at 3
// and uses 4 GPUs, and a gang b, of which nobody knows when it ends, that uses 2.
func soonestScene(t *testing.T, nodes map[string]string) (*Cluster, occupancies, Ends) {
	t.Helper()
	c := testCluster(t, nil, slices.Sorted(maps.Keys(nodes))...)
	o := make(occupancies, c.NumNodes())
	times := map[Tenant]int64{}
	for name, text := range nodes {
		id, _ := c.Node(name)
		for _, word := range strings.Fields(text) {
			who, gpus, _ := strings.Cut(word, "=")
			var used, at int64
			if _, err := fmt.Sscan(gpus, &used); err != nil {
				t.Fatal(err)
			}
			who, when, known := strings.Cut(who, "@")
			if known {
				if _, err := fmt.Sscan(when, &at); err != nil {
					t.Fatal(err)
				}
				times[Tenant{Name: who}] = at
			}
			o.put(c, id, Tenant{Name: who}, []Amount{{c.Resource("nvidia.com/gpu"), used}, {c.Resource("pods"), 1}})
		}
	}
	return c, o, endsOf(times)
}

func endsOf(times map[Tenant]int64) Ends {
	return func(t Tenant) (int64, bool) { at, ok := times[t]; return at, ok }
}

func TestSoonest(t *testing.T) {
	rack := func(c *Cluster, gpus ...int64) *Demand {
		d := gang(c, gpus...)
		d.Required = 1
		return d
	}
	anywhere := func(c *Cluster, gpus ...int64) *Demand { return gang(c, gpus...) }
	cases := map[string]struct {
		nodes map[string]string
		gang  func(*Cluster, ...int64) *Demand
		gpus  []int64
		want  string
	}{
		"the first to end is not enough": {
			nodes: map[string]string{"r0/n0": "a@5=8", "r0/n1": "b@2=8", "r0/n2": "c@9=8"}, gang: anywhere, gpus: []int64{8, 8},
			want: "r0/n0 r0/n1 in rack r0 at 5 after b a",
		},
		"free room and room that becomes free": {
			nodes: map[string]string{"r0/n0": "", "r0/n1": "b@2=8"}, gang: anywhere, gpus: []int64{8, 8},
			want: "r0/n0 r0/n1 in rack r0 at 2 after b",
		},
		"in another rack it would be sooner, but for one member": {
			nodes: map[string]string{"r0/n0": "a@7=8", "r0/n1": "a@7=8", "r1/n0": "b@1=8", "r1/n1": "c@9=8"}, gang: rack, gpus: []int64{8, 8},
			want: "r0/n0 r0/n1 in rack r0 at 7 after a",
		},
		"who ends in time and is not in the way is not waited for": {
			nodes: map[string]string{"r0/n0": "a@5=8", "r0/n1": "b@2=8", "r0/n2": "c@1=4 d@3=4"}, gang: anywhere, gpus: []int64{4},
			want: "r0/n2 in rack r0 at 1 after c",
		},
		"a known end, however late, comes before an unknown one": {
			nodes: map[string]string{"r0/n0": "a=8", "r1/n0": "b@1000=8"}, gang: rack, gpus: []int64{8},
			want: "r1/n0 in rack r1 at 1000 after b",
		},
		"unknown ends: the fewest pods": {
			nodes: map[string]string{"r0/n0": "a=1 b=1 c=6", "r1/n0": "d=8", "r2/n0": "e=4 f=4"}, gang: rack, gpus: []int64{8},
			want: "r1/n0 in rack r1 at 0 and 1 pods after d",
		},
		"unknown ends: a gang of many nodes goes whole": {
			nodes: map[string]string{"r0/n0": "a=8", "r0/n1": "a=8", "r0/n2": "a=8", "r1/n0": "b=8", "r1/n1": "c=8"}, gang: rack, gpus: []int64{8, 8},
			want: "r1/n0 r1/n1 in rack r1 at 0 and 2 pods after b c",
		},
		"some are known": {
			nodes: map[string]string{"r0/n0": "a@3=8", "r0/n1": "b=8", "r1/n0": "c=8", "r1/n1": "d=8"}, gang: rack, gpus: []int64{8, 8},
			want: "r0/n0 r0/n1 in rack r0 at 3 and 1 pods after a b",
		},
		"unknown ends: not all pods of a node": {
			nodes: map[string]string{"r0/n0": "a=2 b=1 c=1 d=4", "r1/n0": "e=3 f=3 g=2"}, gang: rack, gpus: []int64{4},
			want: "r0/n0 in rack r0 at 0 and 1 pods after d",
		},
		"no rack is large enough": {
			nodes: map[string]string{"r0/n0": "a@3=8", "r1/n0": "c@3=8"}, gang: rack, gpus: []int64{8, 8}, want: "none",
		},
		"nobody uses what is missing": {
			nodes: map[string]string{"r0/n0": ""}, gang: anywhere, gpus: []int64{9}, want: "none",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, tenants, ends := soonestScene(t, tc.nodes)
			d := tc.gang(c, tc.gpus...)
			r := c.Soonest(d, mustRefuse(t, c, d, nil), tenants, ends)
			if got := reservationWords(c, r); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
			if r == nil {
				return
			}
			w, ok := c.WaitFor(d, r.Nodes, tenants, ends)
			if again := waitWords(w); !ok || again != waitWords(r.Wait) {
				t.Errorf("waits for%s, %t, which was %s", again, ok, waitWords(r.Wait))
			}
		})
	}
}

func reservationWords(c *Cluster, r *Reservation) string {
	if r == nil {
		return "none"
	}
	var nodes []string
	for _, id := range r.Nodes {
		if id == NoNode {
			continue
		}
		nodes = append(nodes, c.NodeName(id))
	}
	slices.Sort(nodes)
	return strings.Join(nodes, " ") + " in " + r.Domain + waitWords(r.Wait)
}

func waitWords(w Wait) string {
	text := fmt.Sprintf(" at %d", w.At)
	if w.Unknown > 0 {
		text += fmt.Sprintf(" and %d pods", w.Unknown)
	}
	text += " after"
	for _, t := range w.Waiting {
		text += " " + t.String()
	}
	return text
}

// drawEnds gives some of the tenants a time at which they end.
func drawEnds(t *rapid.T) map[Tenant]int64 {
	times := map[Tenant]int64{}
	for _, tenant := range tenantNames {
		if rapid.IntRange(0, 2).Draw(t, "known") > 0 {
			times[tenant] = rapid.Int64Range(1, 4).Draw(t, "end")
		}
	}
	return times
}

// without lets tenants leave everywhere until the returned function brings them back.
func (o occupancies) without(w *world, gone func(Tenant) bool) (bring func()) {
	move := func(sign int64) {
		for node := range o {
			for _, t := range o[node] {
				if gone(t.Tenant) {
					w.move(NodeID(node), t.Used, sign)
				}
			}
		}
	}
	move(1)
	return func() { move(-1) }
}

// Once those that are waited for have ended, and nobody else, the gang has its places; if one of them stayed it
// would not have those; and what is said of their ends is so.
func TestReservedPlacesComeFree(t *testing.T) {
	found, unknown := 0, 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 10)
		tenants := drawTenants(t, w)
		d := drawAny(t, w)
		if rapid.Bool().Draw(t, "min resources") {
			d.MinResources = []Amount{{w.gpu, rapid.Int64Range(1, 60).Draw(t, "min gpus")}}
		}
		times := drawEnds(t)
		_, e, err := w.Plan(d, nil)
		if err != nil || e == nil {
			return
		}
		before := w.snapshot()
		r := w.Soonest(d, e, tenants, endsOf(times))
		if !slices.EqualFunc(before, w.snapshot(), slices.Equal) {
			t.Fatal("the cluster changed")
		}
		if r == nil {
			return
		}
		found++
		again := w.Soonest(d, e, tenants, endsOf(times))
		if reservationWords(w.Cluster, r) != reservationWords(w.Cluster, again) || !slices.Equal(r.Nodes, again.Nodes) {
			t.Fatalf("%v, and then %v", r, again)
		}
		last := int64(0)
		for i, tenant := range r.Waiting {
			if at, known := times[tenant]; known {
				last = max(last, at)
			} else if i+1 < len(r.Waiting) {
				if _, known := times[r.Waiting[i+1]]; known {
					t.Fatalf("unknown ends before known ones: %v", r.Waiting)
				}
			}
		}
		hasUnknown := slices.ContainsFunc(r.Waiting, func(x Tenant) bool { _, known := times[x]; return !known })
		if last != r.At || hasUnknown != (r.Unknown > 0) {
			t.Fatalf("waits for %v until %d with %d pods of unknown end; ends %v", r.Waiting, r.At, r.Unknown, times)
		}
		if hasUnknown {
			unknown++
		}
		holds := func(stays Tenant) error {
			defer tenants.without(w, func(x Tenant) bool { return x != stays && slices.Contains(r.Waiting, x) })()
			if len(w.minResourcesShort(d)) > 0 {
				return fmt.Errorf("minResources are short")
			}
			return replay(w, d, r.Nodes)
		}
		if err := holds(Tenant{}); err != nil {
			t.Fatalf("places %v after %v: %v", r.Nodes, r.Waiting, err)
		}
		for _, x := range r.Waiting {
			if holds(x) == nil {
				t.Fatalf("%v need not end for %v: %v", x, r.Nodes, r.Waiting)
			}
		}
		wait, ok := w.WaitFor(d, r.Nodes, tenants, endsOf(times))
		if !slices.EqualFunc(before, w.snapshot(), slices.Equal) {
			t.Fatal("the cluster changed")
		}
		if !ok || len(d.MinResources) == 0 && ((wait.Unknown > 0) != (r.Unknown > 0) || r.Unknown == 0 && wait.At != r.At) {
			t.Fatalf("places wait for %v, %t; they were reserved with %v", wait, ok, r.Wait)
		}
	}
	for range 40 {
		rapid.Check(t, check)
	}
	t.Logf("%d reservations, %d with unknown ends", found, unknown)
	if found < 60 || unknown < 20 {
		t.Errorf("only %d reservations to judge, %d with unknown ends", found, unknown)
	}
}

// For a gang of one class there is no earlier time at which it fits, and it gets a reservation whenever ends help.
// Where ends are unknown, mostly no fewer pods would do.
func TestNothingIsSooner(t *testing.T) {
	found, unknown, optimal := 0, 0, 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 6)
		tenants := drawTenants(t, w)
		d := drawGang(t, w, gangShape{classes: 1, sets: 1, members: 6, scattered: true})
		times := drawEnds(t)
		_, e, err := w.Plan(d, nil)
		if err != nil || e == nil || !evenSlices(d) {
			return
		}
		r := w.Soonest(d, e, tenants, endsOf(times))
		fits := func(gone func(Tenant) bool) bool {
			defer tenants.without(w, gone)()
			return feasible(w, d, d.Min)
		}
		for at := int64(1); at <= 4; at++ {
			if fits(func(x Tenant) bool { end, known := times[x]; return known && end <= at }) {
				found++
				if r == nil || r.Unknown > 0 || r.At != at {
					t.Fatalf("fits at %d, reserved %v", at, r)
				}
				return
			}
		}
		fewest := tenants.fewest(w, times, fits)
		if (fewest < 0) != (r == nil) || r != nil && r.Unknown == 0 {
			t.Fatalf("fits after %d pods, reserved %v", fewest, r)
		}
		if r == nil {
			return
		}
		unknown++
		pods := int64(0)
		for _, x := range r.Waiting {
			if _, known := times[x]; !known {
				pods += tenants.pods(w, x)
			}
		}
		if pods < fewest {
			t.Fatalf("%d pods, and the fewest are %d", pods, fewest)
		}
		if pods == fewest {
			optimal++
		}
	}
	for range 40 {
		rapid.Check(t, check)
	}
	t.Logf("%d known times; %d of unknown end, %d of them with the fewest pods (%.1f %%)", found, unknown, optimal, 100*float64(optimal)/float64(unknown))
	if found < 100 || unknown < 40 || optimal*100 < unknown*90 {
		t.Errorf("%d known times; %d of unknown end, %d of them with the fewest pods", found, unknown, optimal)
	}
}

func (o occupancies) pods(w *world, x Tenant) int64 {
	n := int64(0)
	for _, on := range o {
		for _, t := range on {
			if t.Tenant == x {
				n += w.podsIn(t.Used)
			}
		}
	}
	return n
}

// fewest is the least number of pods of unknown end that have to go besides all of known end, by trying; -1 if none
// would do.
func (o occupancies) fewest(w *world, times map[Tenant]int64, fits func(func(Tenant) bool) bool) int64 {
	best := int64(-1)
	for set := range 1 << len(tenantNames) {
		pods := int64(0)
		in := func(x Tenant) bool { return set>>slices.Index(tenantNames, x)&1 == 1 }
		for _, x := range tenantNames {
			if _, known := times[x]; !known && in(x) {
				pods += o.pods(w, x)
			}
		}
		if best >= 0 && pods >= best {
			continue
		}
		if fits(func(x Tenant) bool { _, known := times[x]; return known || in(x) }) {
			best = pods
		}
	}
	return best
}

func (w *world) snapshot() [][]int64 {
	out := make([][]int64, len(w.free))
	for r := range w.free {
		out[r] = slices.Clone(w.free[r])
	}
	return out
}

// benchFull is a cluster whose nodes are full of gangs of 16 nodes and of single pods, a third of which has no
// known end.
func benchFull(nodes int) (*Cluster, occupancies, Ends) {
	c := benchCluster(nodes)
	gpu, cpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("cpu"), c.Resource("pods")
	o := make(occupancies, nodes)
	times := map[Tenant]int64{}
	for i := range nodes {
		id := NodeID(i)
		c.SetNode(id, []Amount{{gpu, 8}, {cpu, 192000}, {c.Resource("memory"), 2 << 40}, {pods, 110}}, nil)
		book := func(name string, pod bool, gpus int64, seed int) {
			t := Tenant{Name: name, Pod: pod}
			o.put(c, id, t, []Amount{{gpu, gpus}, {cpu, 1000}, {pods, 1}})
			if seed%3 > 0 {
				times[t] = int64(seed * 7919 % 100_000)
			}
		}
		if i/16%2 == 0 {
			book(fmt.Sprintf("team/job-%d", i/32), false, 8, i/32)
			continue
		}
		for p := range 8 {
			book(fmt.Sprintf("team/pod-%d-%d", i, p), true, 1, 8*i+p)
		}
	}
	return c, o, endsOf(times)
}

// BenchmarkSoonest is what it costs to find a reservation in a full cluster.
func BenchmarkSoonest(b *testing.B) {
	for _, nodes := range []int{5000, 50000} {
		c, tenants, ends := benchFull(nodes)
		rack, _ := c.Level("rack")
		never := func(Tenant) (int64, bool) { return 0, false }
		for _, tc := range []struct {
			name     string
			members  int
			required Level
			ends     Ends
		}{
			{"anywhere", 512, 0, ends},
			{"a rack", 16, rack, ends},
			{"unknown, anywhere", 512, 0, never},
			{"unknown, a rack", 16, rack, never},
		} {
			d := benchGang(c, tc.members, 8)
			d.Required = tc.required
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, tc.name), func(b *testing.B) {
				_, e, _ := c.Plan(d, nil)
				if e == nil {
					b.Fatal("not refused")
				}
				defer reportCPU(b)()
				for b.Loop() {
					if c.Soonest(d, e, tenants, tc.ends) == nil {
						b.Fatal("no reservation")
					}
				}
			})
		}
	}
}
