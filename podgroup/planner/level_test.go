package planner

import (
	"fmt"
	"slices"
	"testing"
)

func TestLevels(t *testing.T) {
	c := NewCluster([]string{"zone", "rack", "kubernetes.io/hostname"})
	if got := c.Levels(); !slices.Equal(got, zoneRack) {
		t.Errorf("levels %v", got)
	}
	for label, want := range map[string]Level{"zone": 1, "rack": 2, "kubernetes.io/hostname": 3} {
		if got, ok := c.Level(label); !ok || got != want || c.LevelName(got) != label {
			t.Errorf("level %s is %d, %v", label, got, ok)
		}
	}
	if _, ok := c.Level("block"); ok {
		t.Error("an unknown level is known")
	}
	if c.LevelName(WholeCluster) != "cluster" || c.NodeLevel() != 3 {
		t.Errorf("%s, %d", c.LevelName(WholeCluster), c.NodeLevel())
	}
}

func TestDomains(t *testing.T) {
	c := treeCluster(t, zoneRack, nil, "z0/r0/n0", "z0/r0/n1", "z0/-/n2", "z1/r0/n0")
	var got []string
	for l := WholeCluster; l <= c.NodeLevel(); l++ {
		for _, d := range c.DomainsAt(l) {
			got = append(got, fmt.Sprintf("%s %s %d-%d", c.LevelName(l), c.DomainName(d), d.Lo, d.Hi))
		}
	}
	want := []string{
		"cluster cluster 0-4", "zone z0 0-3", "zone z1 3-4", "rack r0 0-2", "rack r0 3-4",
		"kubernetes.io/hostname z0/r0/n0 0-1", "kubernetes.io/hostname z0/r0/n1 1-2",
		"kubernetes.io/hostname z0/-/n2 2-3", "kubernetes.io/hostname z1/r0/n0 3-4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if _, ok := c.Around(at(t, c, "z0/-/n2"), rack); ok {
		t.Error("a node without a rack is in one")
	}
	if c.Whole() != c.DomainsAt(WholeCluster)[0] {
		t.Error("the whole cluster is not one domain")
	}
	if d := NewCluster(nil).Whole(); NewCluster(nil).DomainName(d) != "cluster" {
		t.Error("an empty cluster has no name")
	}
}
