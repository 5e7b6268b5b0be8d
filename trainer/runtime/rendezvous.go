package runtime

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// RendezvousPort is the port, on the first node, where the nodes of all frameworks meet that meet at one.
const RendezvousPort int32 = 29500

// IndexEnv returns a variable that tells each pod which of the nodes it is, from zero.
func IndexEnv(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']",
	}}}
}

// ReservedEnv returns one error for each variable of spec.trainer that the trainer sets itself, for a reader
// such as torchrun.
func ReservedEnv(trainer *v1alpha1.Trainer, reader string, names ...string) field.ErrorList {
	if trainer == nil {
		return nil
	}
	var errs field.ErrorList
	for i, env := range trainer.Env {
		if slices.Contains(names, env.Name) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "trainer", "env").Index(i).Child("name"), env.Name,
				"is reserved: the trainer sets it for "+reader))
		}
	}
	return errs
}
