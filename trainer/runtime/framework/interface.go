// Package framework runs the plugins that turn a TrainJob into its child objects.
package framework

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// Plugin is one step, or several, of the pipeline. It implements one or more of the interfaces below, which
// are listed in the order of their phases. Within a phase, plugins run in the order of the registry.
type Plugin interface {
	// Name identifies the plugin in errors and logs.
	Name() string
}

// ValidationPlugin refuses what its later phases could not carry out. No plugin of another phase runs on a
// TrainJob that was refused.
type ValidationPlugin interface {
	Plugin
	// Validate returns one error for each field that cannot work. Paths begin with spec for fields of the
	// TrainJob, and with runtime.spec for fields of its runtime.
	Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList
}

// MLPolicyPlugin tells a training framework about its nodes: counts, environment, commands.
type MLPolicyPlugin interface {
	Plugin
	// EnforceMLPolicy changes info according to the runtime's ML policy; it does nothing if the policy is
	// another plugin's.
	EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error
}

// PodGroupPolicyPlugin makes the pods members of groups.
type PodGroupPolicyPlugin interface {
	Plugin
	// EnforcePodGroupPolicy changes the pod templates of info according to the runtime's pod group policy;
	// it does nothing if the policy is another plugin's.
	EnforcePodGroupPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error
}

// PodNetworkPlugin says under which names the pods reach each other.
type PodNetworkPlugin interface {
	Plugin
	// IdentifyPodNetwork sets the endpoints of every PodSet of info.
	IdentifyPodNetwork(info *runtime.Info, trainJob *v1alpha1.TrainJob) error
}

// ComponentPlugin owns one kind of child object.
type ComponentPlugin interface {
	Plugin
	// Build returns the child objects that a TrainJob should have. It writes nothing.
	Build(ctx context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error)

	// Sync brings the cluster's child objects of this kind to what Build returned, and writes nothing if
	// they are there already. Objects of the wanted names that another owner controls are an error.
	Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error

	// Finish removes what must not outlive a TrainJob that is complete or failed.
	Finish(ctx context.Context, trainJob *v1alpha1.TrainJob) error
}

// StatusPlugin derives a TrainJob's status from its child objects.
type StatusPlugin interface {
	Plugin
	// Status changes the status of trainJob, in memory only.
	Status(ctx context.Context, trainJob *v1alpha1.TrainJob) error
}
