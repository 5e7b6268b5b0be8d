package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
)

// GPUResource is the extended resource that counts a node's GPUs.
const GPUResource corev1.ResourceName = "nvidia.com/gpu"

// createParallelism is how many requests AddNodes keeps in flight.
const createParallelism = 16

// NodeShape describes equal simulated nodes.
type NodeShape struct {
	// Count is how many nodes to add.
	Count int

	// NamePrefix and a number, which continues after existing nodes of the prefix, make the names.
	// Empty means "gpu".
	NamePrefix string

	// GPUs is the number of nvidia.com/gpu; 0 makes nodes without the resource.
	GPUs int

	// CPU, Memory and Pods are the other allocatable resources. Empty and 0 mean 192, 2Ti and 110,
	// as large GPU servers have.
	CPU, Memory string
	Pods        int

	// Labels are added to every node.
	Labels map[string]string

	// Topology levels label the nodes, outermost first; the nodes of one call are split evenly.
	Topology []Level
}

// AddNodes adds simulated nodes and returns their names in order. It does not wait until they are
// ready: see WaitNodesReady.
func (c *Cluster) AddNodes(ctx context.Context, shape NodeShape) ([]string, error) {
	resources, err := shape.resources()
	if err != nil {
		return nil, err
	}
	if shape.NamePrefix == "" {
		shape.NamePrefix = "gpu"
	}
	first, err := c.nextNode(ctx, shape.NamePrefix)
	if err != nil {
		return nil, err
	}
	names := make([]string, shape.Count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(createParallelism)
	for i := range names {
		names[i] = shape.NamePrefix + "-" + strconv.Itoa(first+i)
		node := shape.node(names[i], i, resources)
		group.Go(func() error {
			_, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		})
	}
	return names, group.Wait()
}

func (s *NodeShape) resources() (corev1.ResourceList, error) {
	if s.Count < 1 {
		return nil, fmt.Errorf("count: must be at least 1, is %d", s.Count)
	}
	if s.GPUs < 0 {
		return nil, fmt.Errorf("gpus: must not be negative, is %d", s.GPUs)
	}
	if s.Pods < 0 {
		return nil, fmt.Errorf("pods: must not be negative, is %d", s.Pods)
	}
	for _, level := range s.Topology {
		if level.Domains > s.Count {
			return nil, fmt.Errorf("topology: level %s: %d domains are more than the %d nodes", level.Label, level.Domains, s.Count)
		}
	}
	if err := validateTopology(s.Topology); err != nil {
		return nil, err
	}
	quantity := func(field, value, fallback string) (resource.Quantity, error) {
		if value == "" {
			value = fallback
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return q, fmt.Errorf("%s: %q: %w", field, value, err)
		}
		return q, nil
	}
	cpu, cpuErr := quantity("cpu", s.CPU, "192")
	memory, memoryErr := quantity("memory", s.Memory, "2Ti")
	if err := errors.Join(cpuErr, memoryErr); err != nil {
		return nil, err
	}
	pods := int64(s.Pods)
	if pods == 0 {
		pods = 110
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    cpu,
		corev1.ResourceMemory: memory,
		corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	if s.GPUs > 0 {
		resources[GPUResource] = *resource.NewQuantity(int64(s.GPUs), resource.DecimalSI)
	}
	return resources, nil
}

func (s *NodeShape) node(name string, i int, resources corev1.ResourceList) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelArchStable: "amd64",
		corev1.LabelOSStable:   "linux",
	}
	for _, level := range s.Topology {
		labels[level.Label] = level.domain(i, s.Count)
	}
	maps.Copy(labels, s.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      labels,
			Annotations: map[string]string{simulatedNodeAnnotation: simulatedNodeValue},
		},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}

// nextNode returns the number after the highest of the nodes named prefix-number.
func (c *Cluster) nextNode(ctx context.Context, prefix string) (int, error) {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	next := 0
	for _, node := range nodes.Items {
		suffix, found := strings.CutPrefix(node.Name, prefix+"-")
		if number, err := strconv.Atoi(suffix); found && err == nil {
			next = max(next, number+1)
		}
	}
	return next, nil
}

// WaitNodesReady waits until the named nodes, or all nodes if none is named, are Ready and accept pods.
func (c *Cluster) WaitNodesReady(ctx context.Context, names ...string) error {
	return c.await(ctx, "nodes to be ready", func(ctx context.Context) (bool, error) {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := map[string]bool{}
		for i := range nodes.Items {
			ready[nodes.Items[i].Name] = acceptsPods(&nodes.Items[i])
		}
		if len(names) == 0 {
			for _, ok := range ready {
				if !ok {
					return false, nil
				}
			}
			return true, nil
		}
		for _, name := range names {
			if !ready[name] {
				return false, nil
			}
		}
		return true, nil
	})
}

// acceptsPods is true for a Ready node without the taints that keep pods off a node that is not.
func acceptsPods(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// RemoveNode removes a node and the pods bound to it, as pod garbage collection would later.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String(),
	})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err := ignore(err, apierrors.IsNotFound); err != nil {
			return err
		}
	}
	return nil
}
