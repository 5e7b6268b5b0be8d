package planner

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Resource is a column of the capacity table; see Cluster.Resource.
type Resource int32

// Resource returns the column of a resource, by its Kubernetes name, adding it if it is new.
// Amounts are in the scheduler's units: millicores for cpu, bytes for memory and
// ephemeral-storage, whole numbers for everything else.
func (c *Cluster) Resource(name string) Resource {
	r, ok := c.columns[name]
	if !ok {
		r = Resource(len(c.resources))
		c.columns[name] = r
		c.resources = append(c.resources, name)
		c.devices = append(c.devices, isDevice(name))
		c.totals = append(c.totals, 0)
		c.exists = append(c.exists, false)
		c.free = append(c.free, c.none)
		c.capacity = append(c.capacity, c.none)
	}
	return r
}

// column gives a resource a column of its own, to write an amount into. The names that anybody can make
// up in a request do not get one.
func (c *Cluster) column(r Resource) {
	if !c.exists[r] {
		c.exists[r] = true
		c.free[r], c.capacity[r] = make([]int64, len(c.names)), make([]int64, len(c.names))
	}
}

// isDevice reports whether a resource counts devices, such as GPUs, which come in blocks. All but
// the resources that every node has are taken for devices.
func isDevice(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return false
	}
	return !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// ResourceName returns the Kubernetes name of a column.
func (c *Cluster) ResourceName(r Resource) string { return c.resources[r] }

// Amount is a quantity of one resource.
type Amount struct {
	Resource Resource
	Value    int64
}

// SetNode states a node's whole capacity and what its pods use of it; a resource not named is not
// there. What is left may be negative on an overcommitted node.
func (c *Cluster) SetNode(id NodeID, capacity, used []Amount) {
	for r := range c.resources {
		if c.exists[r] {
			c.totals[r] -= c.capacity[r][id]
			c.free[r][id], c.capacity[r][id] = 0, 0
		}
	}
	for _, a := range capacity {
		c.column(a.Resource)
		c.capacity[a.Resource][id] = a.Value
		c.free[a.Resource][id] = a.Value
		c.totals[a.Resource] += a.Value
	}
	for _, a := range used {
		c.column(a.Resource)
		c.free[a.Resource][id] -= a.Value
	}
}

// Take subtracts amounts from what is left on a node, and Return gives them back: for capacity
// that is held by plans which no pod shows yet.
func (c *Cluster) Take(id NodeID, amounts []Amount) {
	c.move(id, amounts, -1)
}

// Return is the inverse of Take.
func (c *Cluster) Return(id NodeID, amounts []Amount) {
	c.move(id, amounts, 1)
}

// Free returns what is left of a resource on a node.
func (c *Cluster) Free(id NodeID, r Resource) int64 { return c.free[r][id] }

// TotalFree returns what is left of a resource in the whole cluster, overcommitted nodes counted
// as empty, and what the cluster has of it in all.
func (c *Cluster) TotalFree(r Resource) (free, capacity int64) {
	for i, f := range c.free[r] {
		free = plus(free, max(f, 0))
		capacity = plus(capacity, c.capacity[r][i])
	}
	return free, capacity
}

// move adds an amount times over to what is left on a node.
func (c *Cluster) move(node NodeID, amounts []Amount, times int64) {
	for _, a := range amounts {
		c.column(a.Resource)
		c.free[a.Resource][node] += times * a.Value
	}
}
