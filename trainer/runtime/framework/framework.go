package framework

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// Framework runs plugins, phase by phase, each phase in the order in which the plugins were given.
type Framework struct {
	validation     []ValidationPlugin
	mlPolicy       []MLPolicyPlugin
	podGroupPolicy []PodGroupPolicyPlugin
	podNetwork     []PodNetworkPlugin
	components     []ComponentPlugin
	status         []StatusPlugin
}

// New makes a Framework of plugins.
func New(plugins ...Plugin) *Framework {
	f := &Framework{}
	for _, plugin := range plugins {
		f.validation = appendIf(f.validation, plugin)
		f.mlPolicy = appendIf(f.mlPolicy, plugin)
		f.podGroupPolicy = appendIf(f.podGroupPolicy, plugin)
		f.podNetwork = appendIf(f.podNetwork, plugin)
		f.components = appendIf(f.components, plugin)
		f.status = appendIf(f.status, plugin)
	}
	return f
}

func appendIf[P Plugin](plugins []P, plugin Plugin) []P {
	if p, ok := plugin.(P); ok {
		return append(plugins, p)
	}
	return plugins
}

// Components are the child objects of one kind that a TrainJob should have.
type Components struct {
	plugin  ComponentPlugin
	Objects []client.Object
}

// Validate runs the validation phase and returns every error of every plugin.
func (f *Framework) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	var errs field.ErrorList
	for _, plugin := range f.validation {
		errs = append(errs, plugin.Validate(info, trainJob)...)
	}
	return errs
}

// Build runs the phases from the ML policy to the component builder, and returns the child objects in the
// order in which they have to be made: what pods wait for comes before the pods. It changes info. Run it
// only on what Validate accepts.
func (f *Framework) Build(ctx context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]Components, error) {
	for _, plugin := range f.mlPolicy {
		if err := plugin.EnforceMLPolicy(info, trainJob); err != nil {
			return nil, fmt.Errorf("%s: enforcing the ML policy: %w", plugin.Name(), err)
		}
	}
	for _, plugin := range f.podGroupPolicy {
		if err := plugin.EnforcePodGroupPolicy(info, trainJob); err != nil {
			return nil, fmt.Errorf("%s: enforcing the pod group policy: %w", plugin.Name(), err)
		}
	}
	for _, plugin := range f.podNetwork {
		if err := plugin.IdentifyPodNetwork(info, trainJob); err != nil {
			return nil, fmt.Errorf("%s: identifying the pod network: %w", plugin.Name(), err)
		}
	}
	components := make([]Components, 0, len(f.components))
	for _, plugin := range f.components {
		objects, err := plugin.Build(ctx, info, trainJob)
		if err != nil {
			return nil, fmt.Errorf("%s: building components: %w", plugin.Name(), err)
		}
		components = append(components, Components{plugin: plugin, Objects: objects})
	}
	return components, nil
}

// Sync brings the cluster to what Build returned, kind by kind; it stops at the first error, so that no
// pods are made without what they wait for.
func (f *Framework) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, components []Components) error {
	for _, c := range components {
		if err := c.plugin.Sync(ctx, trainJob, c.Objects); err != nil {
			return fmt.Errorf("%s: %w", c.plugin.Name(), err)
		}
	}
	return nil
}

// Finish removes what must not outlive a TrainJob. One plugin's failure does not keep the others from
// their part.
func (f *Framework) Finish(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	var errs []error
	for _, plugin := range f.components {
		if err := plugin.Finish(ctx, trainJob); err != nil {
			errs = append(errs, fmt.Errorf("%s: finishing: %w", plugin.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// Status runs the status phase on trainJob, in memory only.
func (f *Framework) Status(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	for _, plugin := range f.status {
		if err := plugin.Status(ctx, trainJob); err != nil {
			return fmt.Errorf("%s: reading the status: %w", plugin.Name(), err)
		}
	}
	return nil
}
