package planner

import "fmt"

// Validate returns an error that names the first field of a demand that no gang can have: an index out
// of range, a request that is not positive, a list that does not have one entry for each node. Plan
// does the same first of all; whatever else takes a demand expects one that has passed.
func (c *Cluster) Validate(d *Demand) error {
	if len(d.Members) == 0 {
		return fmt.Errorf("demand.Members: there are none to place")
	}
	if d.Min < 1 || d.Min > len(d.Members) {
		return fmt.Errorf("demand.Min: %d is not from 1 to the number of members, %d", d.Min, len(d.Members))
	}
	for i := range d.Classes {
		if err := c.validateClass(i, &d.Classes[i]); err != nil {
			return err
		}
	}
	sets := max(len(d.Sets), 1)
	for i := range d.Sets {
		if size := d.Sets[i].SliceSize; size < 0 {
			return fmt.Errorf("demand.Sets[%d].SliceSize: %d is negative", i, size)
		}
	}
	for i := range d.Members {
		m := &d.Members[i]
		if m.Class < 0 || m.Class >= len(d.Classes) {
			return fmt.Errorf("demand.Members[%d].Class: %d is none of the %d classes", i, m.Class, len(d.Classes))
		}
		if m.Set < 0 || m.Set >= sets {
			return fmt.Errorf("demand.Members[%d].Set: %d is none of the %d sets", i, m.Set, sets)
		}
	}
	for i := range d.Placed {
		p := &d.Placed[i]
		if p.Node < 0 || int(p.Node) >= len(c.names) {
			return fmt.Errorf("demand.Placed[%d].Node: %d is none of the %d nodes", i, p.Node, len(c.names))
		}
		if p.Set < 0 || p.Set >= sets {
			return fmt.Errorf("demand.Placed[%d].Set: %d is none of the %d sets", i, p.Set, sets)
		}
	}
	for i, a := range d.MinResources {
		if a.Resource < 0 || int(a.Resource) >= len(c.resources) {
			return fmt.Errorf("demand.MinResources[%d].Resource: there is no column %d", i, a.Resource)
		}
	}
	return nil
}

func (c *Cluster) validateClass(index int, class *Class) error {
	for i, a := range class.Requests {
		if a.Resource < 0 || int(a.Resource) >= len(c.resources) {
			return fmt.Errorf("demand.Classes[%d].Requests[%d].Resource: there is no column %d", index, i, a.Resource)
		}
		if a.Value <= 0 {
			return fmt.Errorf("demand.Classes[%d].Requests[%d]: %s %d is not positive", index, i, c.resources[a.Resource], a.Value)
		}
		for _, b := range class.Requests[:i] {
			if b.Resource == a.Resource {
				return fmt.Errorf("demand.Classes[%d].Requests[%d]: %s is requested twice", index, i, c.resources[a.Resource])
			}
		}
	}
	if n := len(class.Blocked); class.Blocked != nil && n != len(c.names) {
		return fmt.Errorf("demand.Classes[%d].Blocked: has %d entries for %d nodes", index, n, len(c.names))
	}
	if n := len(class.Score); class.Score != nil && n != len(c.names) {
		return fmt.Errorf("demand.Classes[%d].Score: has %d entries for %d nodes", index, n, len(c.names))
	}
	return nil
}
