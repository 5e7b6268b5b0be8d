package gputopology

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// maxAlternatives bounds how many places a native pod group can be tried on besides the best one.
const maxAlternatives = 8

// Args are the arguments of the GPUTopology plugin in a KubeSchedulerConfiguration:
//
//	pluginConfig:
//	- name: GPUTopology
//	  args:
//	    topologyLevels: [topology.kubernetes.io/zone, example.com/rack]
//	    accelerators: [nvidia.com/gpu]
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// The levels of the domains that are filled and that pod groups are kept in. They should be those
	// of the Coscheduling plugin.
	gangplan.LevelArgs `json:",inline"`

	// Accelerators are the extended resources that are scarce and come in nodes of several, the most
	// important one first. A name may end with * for all that begin so. DefaultAccelerators by
	// default.
	Accelerators []string `json:"accelerators,omitempty"`

	// Alternatives is how many other places than the best one a native pod group is tried on, for the
	// case that a plugin refuses the best one as late as at Reserve. Each costs another simulation of
	// the gang. From 0 to 8; 2 by default.
	Alternatives *int32 `json:"alternatives,omitempty"`
}

// decodeArgs reads the plugin's arguments, sets defaults and validates. A bad value is an error that
// names its field.
func decodeArgs(obj runtime.Object) (*Args, error) {
	args := &Args{}
	if err := gangplan.DecodeArgs(Name, obj, args); err != nil {
		return nil, err
	}
	if args.Accelerators == nil {
		args.Accelerators = DefaultAccelerators
	}
	if args.Alternatives == nil {
		args.Alternatives = ptr.To[int32](2)
	}
	if err := args.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
	}
	return args, nil
}

func (a *Args) validate() field.ErrorList {
	var errs field.ErrorList
	accelerators, seen := field.NewPath("accelerators"), map[string]bool{}
	if len(a.Accelerators) == 0 {
		errs = append(errs, field.Required(accelerators, "name at least one, or leave the field out for the default"))
	}
	for i, name := range a.Accelerators {
		path := accelerators.Index(i)
		if problem := validateAccelerator(name); problem != "" {
			errs = append(errs, field.Invalid(path, name, problem))
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(path, name))
		}
		seen[name] = true
	}
	if n := *a.Alternatives; n < 0 || n > maxAlternatives {
		errs = append(errs, field.Invalid(field.NewPath("alternatives"), n, fmt.Sprintf("must be from 0 to %d", maxAlternatives)))
	}
	return append(errs, a.LevelArgs.Validate()...)
}

// validateAccelerator says what is wrong with the name of an extended resource, or returns "".
func validateAccelerator(name string) string {
	start, wild := strings.CutSuffix(name, "*")
	domain, _, found := strings.Cut(start, "/")
	if !found || domain == "" {
		return "must be an extended resource, such as example.com/gpu"
	}
	if wild {
		// What stands for the rest must leave a valid name.
		name = strings.TrimRight(start, "-_.") + "x"
	}
	if msgs := validation.IsQualifiedName(name); len(msgs) > 0 {
		return strings.Join(msgs, "; ")
	}
	if strings.HasSuffix(domain, "kubernetes.io") {
		return "must be an extended resource, not one of Kubernetes' own"
	}
	return ""
}
