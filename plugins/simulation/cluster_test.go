package simulation

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testNode is a node in a rack of a block, with so many GPUs.
func testNode(name, block, rack string, gpus int64) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
		GPU: *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"block": block, "rack": rack, corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

func newCluster(t testing.TB, options Options) *Cluster {
	t.Helper()
	options.Coscheduling = "topologyLevels: [block, rack]"
	options.GPUTopology = "topologyLevels: [block, rack]"
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestGangRunsAndEnds(t *testing.T) {
	c := newCluster(t, Options{})
	c.Observe(func(e Event) { t.Log(e.At.Format("15:04:05"), e) })
	for i := range 4 {
		c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", fmt.Sprintf("r%d", i/2), 8))
	}
	c.Submit(Job{Name: "a", Sizes: []int64{8, 8, 8}, MinMember: 3, RunTime: time.Minute})
	c.Submit(Job{Name: "b", Sizes: []int64{8, 8}, MinMember: 2, RunTime: time.Minute})
	if err := c.Settle(); err != nil {
		t.Fatal(err)
	}
	if err := c.Advance(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, g := range c.api.groups {
		t.Log(g.Name, g.Status.Phase, g.Status.Conditions)
	}
	if err := c.Advance(200 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, g := range c.api.groups {
		t.Log(g.Name, g.Status.Phase, g.Status.Conditions)
	}
}
