// Package volcano makes the pods of a TrainJob members of PodGroups of Volcano, for clusters that schedule
// with it.
package volcano

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// Name of the plugin.
const Name = "Volcano"

// QueueAnnotation, on the metadata of a runtime's template, names Volcano's queue of the TrainJobs.
const QueueAnnotation = "scheduling.volcano.sh/queue-name"

// The API's defaults, for runtimes that were stored without them.
const (
	defaultMode               = "hard"
	defaultHighestTierAllowed = 1
)

// Volcano owns the PodGroups of the TrainJobs whose runtime has a volcano policy. As with Kubeflow Trainer,
// the runtime's pod templates have to name Volcano as their scheduler.
type Volcano struct {
	gang.Groups
}

var (
	_ framework.ValidationPlugin     = (*Volcano)(nil)
	_ framework.PodGroupPolicyPlugin = (*Volcano)(nil)
	_ framework.ComponentPlugin      = (*Volcano)(nil)
)

// New makes the plugin. It reads through c, which may be cached but must be indexed by gang.OwnerIndex, and
// writes PodGroups. Through live, which must not be cached, it reads one that c does not show where that matters.
func New(c client.Client, live client.Reader) *Volcano {
	return &Volcano{gang.Groups{Client: c, Live: live, Object: &PodGroup{}, List: &PodGroupList{}}}
}

// Name implements framework.Plugin.
func (*Volcano) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (v *Volcano) Validate(info *runtime.Info, _ *v1alpha1.TrainJob) field.ErrorList {
	backend, _ := gang.BackendOf(info)
	if backend != gang.Volcano {
		return nil
	}
	errs := gang.ValidateMembership(info, backend)
	if queue, ok := info.Annotations[QueueAnnotation]; ok && queue == "" {
		errs = append(errs, field.Required(field.NewPath("runtime", "spec", "template", "metadata", "annotations").Key(QueueAnnotation),
			"must name a queue where it is set"))
	}
	return errs
}

// EnforcePodGroupPolicy implements framework.PodGroupPolicyPlugin.
func (*Volcano) EnforcePodGroupPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	if backend, _ := gang.BackendOf(info); backend != gang.Volcano {
		return nil
	}
	for _, g := range gang.Of(info, trainJob) {
		for _, podSet := range g.PodSets {
			metav1.SetMetaDataAnnotation(&podSet.Job.Template.Spec.Template.ObjectMeta, gang.VolcanoGroupAnnotation, g.Name)
		}
	}
	return nil
}

// Build implements framework.ComponentPlugin.
func (v *Volcano) Build(ctx context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	if backend, _ := gang.BackendOf(info); backend != gang.Volcano {
		return nil, nil
	}
	if err := v.CheckServed(gang.Volcano, gang.VolcanoPath, "install Volcano"); err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, g := range gang.Of(info, trainJob) {
		spec, err := v.spec(ctx, &g, info, trainJob.Namespace)
		if err != nil {
			return nil, err
		}
		objects = append(objects, &PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "PodGroup"},
			ObjectMeta: child.Metadata(trainJob, g.Name),
			Spec:       *spec,
		})
	}
	return objects, nil
}

func (v *Volcano) spec(ctx context.Context, g *gang.Gang, info *runtime.Info, namespace string) (*PodGroupSpec, error) {
	members, err := g.Members()
	if err != nil {
		return nil, err
	}
	total, err := g.MinResources(ctx, v.Client, namespace)
	if err != nil {
		return nil, err
	}
	spec := &PodGroupSpec{
		MinMember:         members,
		MinResources:      total,
		Queue:             info.Annotations[QueueAnnotation],
		PriorityClassName: g.PriorityClassName(),
	}
	if err := v.checkPriorityClass(ctx, g); err != nil {
		return nil, err
	}
	if topology := info.PodGroupPolicy.Volcano.NetworkTopology; topology != nil {
		spec.NetworkTopology = &NetworkTopologySpec{
			Mode:               topology.Mode,
			HighestTierAllowed: ptr.To(ptr.Deref(topology.HighestTierAllowed, defaultHighestTierAllowed)),
		}
		if topology.Mode == "" {
			spec.NetworkTopology.Mode = defaultMode
		}
	}
	return spec, nil
}

// checkPriorityClass returns an error that names the replicated job whose priority class does not exist: the
// API server would refuse its pods one by one, and Volcano wait for them.
func (v *Volcano) checkPriorityClass(ctx context.Context, g *gang.Gang) error {
	if v.Client == nil {
		return nil
	}
	for _, podSet := range g.PodSets {
		name := podSet.PodSpec().PriorityClassName
		if name == "" {
			continue
		}
		err := v.Client.Get(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("priorityClassName of replicated job %s: PriorityClass %q does not exist", podSet.Job.Name, name)
		}
		if err != nil {
			return fmt.Errorf("getting PriorityClass %s: %w", name, err)
		}
	}
	return nil
}
