package controlplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTopology(t *testing.T) {
	zone := Level{Label: "topology.kubernetes.io/zone", Prefix: "zone", Domains: 2}
	rack := Level{Label: "topology.muster.dev/rack", Prefix: "rack", Domains: 4}
	clique := Level{Label: "nvidia.com/gpu.clique", Prefix: "gpu.clique", Domains: 8}
	for name, test := range map[string]struct {
		value string
		want  []Level
		err   string
	}{
		"empty":               {value: ""},
		"short names":         {value: "zone=2,rack=4", want: []Level{zone, rack}},
		"spaces":              {value: "zone=2, rack=4", want: []Level{zone, rack}},
		"label key":           {value: "rack=4,nvidia.com/gpu.clique=8", want: []Level{rack, clique}},
		"no count":            {value: "zone", err: `"zone" is not level=domains`},
		"empty level":         {value: "zone=2,", err: `"" is not level=domains`},
		"count not a number":  {value: "rack=many", err: `"many" is not a number`},
		"no domains":          {value: "rack=0", err: "at least 1 domain"},
		"negative":            {value: "rack=-4", err: "at least 1 domain"},
		"unknown short name":  {value: "cupboard=2", err: `"cupboard" is neither`},
		"bad label key":       {value: "a//b=2", err: "is not a label key"},
		"twice":               {value: "rack=2,rack=4", err: "given twice"},
		"twice by label":      {value: "rack=2,topology.muster.dev/rack=4", err: "given twice"},
		"uneven":              {value: "zone=2,rack=3", err: "3 domains cannot be split evenly over the 2"},
		"outer level smaller": {value: "zone=4,rack=2", err: "cannot be split evenly"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTopology(test.value)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDomain checks, for every number of nodes that holds all domains, that no domain is empty, sizes
// differ by at most one, domains are contiguous, and each lies within one domain of the level above.
func TestDomain(t *testing.T) {
	zones, racks := Level{Prefix: "zone", Domains: 2}, Level{Prefix: "rack", Domains: 6}
	for n := 6; n <= 40; n++ {
		size := map[string]int{}
		zoneOf := map[string]string{}
		last := ""
		for i := range n {
			zone, rack := zones.domain(i, n), racks.domain(i, n)
			if rack != last && size[rack] > 0 {
				t.Errorf("%d nodes: %s is not contiguous", n, rack)
			}
			if z, seen := zoneOf[rack]; seen && z != zone {
				t.Errorf("%d nodes: %s is in %s and %s", n, rack, z, zone)
			}
			last = rack
			size[rack]++
			zoneOf[rack] = zone
		}
		if len(size) != racks.Domains {
			t.Errorf("%d nodes: %d racks, want %d", n, len(size), racks.Domains)
		}
		for rack, count := range size {
			if count != n/racks.Domains && count != n/racks.Domains+1 {
				t.Errorf("%d nodes: %s has %d", n, rack, count)
			}
		}
	}
}
