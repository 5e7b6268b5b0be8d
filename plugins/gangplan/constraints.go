package gangplan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// Constrain makes the demand obey what the gang asks of the topology: levels for the gang, levels and
// slices for its sets, and the set and slice of every member, placed ones included. It returns a
// *podgroup.TopologyError for a level that the cluster does not have, or one outside another that it
// must be inside.
func (c *Cluster) Constrain(d *Demand, a *podgroup.Arrangement) error {
	const gang = "the PodGroup"
	var err error
	if d.Required, d.Preferred, err = c.pair(gang, a.Gang); err != nil {
		return err
	}
	d.Sets = make([]planner.Set, len(a.Sets))
	for i, asked := range a.Sets {
		set := &d.Sets[i]
		if set.Required, set.Preferred, err = c.pair(asked.Of, asked.Topology); err != nil {
			return err
		}
		if asked.SliceSize == 0 {
			continue
		}
		set.SliceSize = asked.SliceSize
		if set.SliceLevel, err = c.level(asked.SlicedBy, asked.SliceLevel); err != nil {
			return err
		}
		if outer := max(set.Required, d.Required); set.SliceLevel < outer {
			return outside(asked.SlicedBy, asked.SliceLevel, fmt.Sprintf("%s, in one domain of which all members must be", c.LevelName(outer)))
		}
	}
	for i, pod := range d.Pods {
		d.Members[i].Set, d.Members[i].Slice = a.Place(pod.UID)
	}
	for i, p := range d.placed {
		d.Demand.Placed[i].Set, d.Demand.Placed[i].Slice = a.Place(p.UID)
	}
	return nil
}

// pair returns the required and the preferred level that somebody asks for.
func (c *Cluster) pair(who string, t podgroup.Topology) (required, preferred planner.Level, err error) {
	if required, err = c.level(who, t.Required); err != nil {
		return 0, 0, err
	}
	if preferred, err = c.level(who, t.Preferred); err != nil {
		return 0, 0, err
	}
	if t.Preferred.Label != "" && preferred <= required {
		return 0, 0, outside(who, t.Preferred, fmt.Sprintf("%s, which annotation %s asks for", t.Required.Label, t.Required.Annotation))
	}
	return required, preferred, nil
}

// level returns the level that somebody asks for by its label; the whole cluster if none is asked for.
func (c *Cluster) level(who string, asked podgroup.Asked) (planner.Level, error) {
	if asked.Label == "" {
		return planner.WholeCluster, nil
	}
	level, known := c.Level(asked.Label)
	if !known {
		return 0, &podgroup.TopologyError{Annotation: asked.Annotation, Of: who, Problem: fmt.Sprintf(
			"%q is not a topology level of the scheduler; its levels are %s", asked.Label, strings.Join(c.KnownLevels(), ", "))}
	}
	return level, nil
}

// KnownLevels lists the labels of all levels, outermost first.
func (c *Cluster) KnownLevels() []string {
	known := slices.Clone(c.Levels())
	if !slices.Contains(known, corev1.LabelHostname) {
		known = append(known, corev1.LabelHostname)
	}
	return known
}

func outside(who string, asked podgroup.Asked, of string) error {
	return &podgroup.TopologyError{Annotation: asked.Annotation, Of: who, Problem: fmt.Sprintf("level %q is not inside level %s", asked.Label, of)}
}
