package gangplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// tenancies are the tenants of a node at a generation of its snapshot entry.
type tenancies struct {
	generation int64
	known      bool
	list       []planner.Tenancy
}

// others are the tenants of the nodes besides one gang.
type others struct {
	cluster *Cluster
	without planner.Tenant
}

// Others tells who uses the nodes besides a gang. It looks at the pods of a node when it is asked about
// it, if they changed since it was asked last.
func (c *Cluster) Others(gang types.NamespacedName) planner.Tenants {
	return &others{c, planner.Tenant{Name: gang.String()}}
}

// On implements planner.Tenants.
func (o *others) On(node planner.NodeID) []planner.Tenancy {
	list := o.cluster.tenantsOf(node)
	if i := slices.IndexFunc(list, func(t planner.Tenancy) bool { return t.Tenant == o.without }); i >= 0 {
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	return list
}

// TenantOf names who uses what a pod uses: its gang, or the pod itself if it is in none.
func TenantOf(pod *corev1.Pod) planner.Tenant {
	if gang, ok := podgroup.Key(pod); ok {
		return planner.Tenant{Name: gang.String()}
	}
	return planner.Tenant{Name: klog.KObj(pod).String(), Pod: true}
}

func (c *Cluster) tenantsOf(node planner.NodeID) []planner.Tenancy {
	if len(c.tenants) != len(c.infoByID) {
		c.tenants = make([]tenancies, len(c.infoByID))
	}
	info, entry := c.infoByID[node], &c.tenants[node]
	if entry.known && entry.generation == info.GetGeneration() {
		return entry.list
	}
	*entry = tenancies{generation: info.GetGeneration(), known: true}
	index := map[planner.Tenant]int{}
	for _, pod := range info.GetPods() {
		tenant := TenantOf(pod.GetPod())
		i, known := index[tenant]
		if !known {
			i = len(entry.list)
			index[tenant] = i
			entry.list = append(entry.list, planner.Tenancy{Tenant: tenant})
		}
		t := &entry.list[i]
		for _, a := range c.UsedBy(pod) {
			if j := slices.IndexFunc(t.Used, func(u planner.Amount) bool { return u.Resource == a.Resource }); j >= 0 {
				t.Used[j].Value += a.Value
			} else {
				t.Used = append(t.Used, a)
			}
		}
	}
	return entry.list
}
