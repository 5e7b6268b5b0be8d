package gangplan

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// asked tells the extended resources that the profile's NodeResourcesFit asks a node for from those
// that it leaves to others: ignoredResources and ignoredResourceGroups of its arguments, for scheduler
// extenders, and those that a device class stands for. The arguments are not to be had from outside, so
// the plugin is asked whether a pod with the resource fits on a node without.
type asked struct {
	fw      framework.Framework
	ignored map[corev1.ResourceName]bool
	// devices says for which a device class stood when that was asked first since the model was synced: classes come and
	// go, but hardly while the pods of all nodes are counted.
	devices map[corev1.ResourceName]bool
}

// Use makes the model count resources as a profile's plugins do.
func (c *Cluster) Use(fw framework.Framework) { c.asked.fw = fw }

// left reports whether a resource is left to others.
func (a *asked) left(name corev1.ResourceName) bool {
	if a.fw == nil || !schedutil.IsDRAExtendedResourceName(name) {
		return false
	}
	if a.devicesFor(name) {
		return true
	}
	ignored, known := a.ignored[name]
	if !known {
		if a.ignored == nil {
			a.ignored = map[corev1.ResourceName]bool{}
		}
		ignored = a.fits(name)
		a.ignored[name] = ignored
	}
	return ignored
}

func (a *asked) devicesFor(name corev1.ResourceName) bool {
	backed, known := a.devices[name]
	if !known {
		if a.devices == nil {
			a.devices = map[corev1.ResourceName]bool{}
		}
		backed = backedByDevices(a.fw, name)
		a.devices[name] = backed
	}
	return backed
}

// fits reports whether NodeResourcesFit takes a pod with a resource on a node without. It does not if
// the plugin is not there.
func (a *asked) fits(name corev1.ResourceName) bool {
	one := corev1.ResourceList{name: resource.MustParse("1")}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: one}}}}}
	info := framework.NewNodeInfo()
	info.SetNode(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}})
	for _, e := range a.fw.EnqueueExtensions() {
		if fit, ok := e.(*noderesources.Fit); ok {
			state := newTrialState()
			if _, status := fit.PreFilter(context.Background(), state, pod, []fwk.NodeInfo{info}); !status.IsSuccess() {
				return false
			}
			return fit.Filter(context.Background(), state, pod, info).IsSuccess()
		}
	}
	return false
}

// backed reports whether a device class stands for one of a pod's extended resources.
func (a *asked) backed(info fwk.PodInfo) bool {
	if a.fw == nil {
		return false
	}
	for name, value := range info.CalculateResource().Resource.GetScalarResources() {
		if value > 0 && a.devicesFor(name) {
			return true
		}
	}
	return false
}
