package mpi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

const (
	hostfileVolumeName = "mpi-hostfile"
	hostfileKey        = "hostfile"
	hostfileDir        = "/etc/mpi"
	hostfilePath       = hostfileDir + "/" + hostfileKey
)

// maxHostfileBytes is what a ConfigMap holds.
const maxHostfileBytes = corev1.MaxSecretSize

func hostfileName(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + "-mpi-hostfile"
}

func hostfileVolume(trainJob *v1alpha1.TrainJob) corev1.Volume {
	return corev1.Volume{Name: hostfileVolumeName, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: hostfileName(trainJob)},
		Items:                []corev1.KeyToPath{{Key: hostfileKey, Path: hostfileKey, Mode: ptr.To[int32](0o444)}},
	}}}
}

// hosts returns the pods that train, in the order of the JobSet.
func hosts(info *runtime.Info) []*runtime.PodSet {
	var hosts []*runtime.PodSet
	for p := range info.PodSets {
		podSet := &info.PodSets[p]
		if podSet.Job.Name == runtime.WorkersJob || podSet.Job.Name == runtime.LauncherJob && info.LauncherTrains() {
			hosts = append(hosts, podSet)
		}
	}
	return hosts
}

// validateHostfile checks that all nodes have room in the hostfile, before anybody writes it.
func validateHostfile(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	bytes := 0
	for _, podSet := range hosts(info) {
		longest := hostfileLine(info.Endpoint(trainJob, podSet, podSet.Replicas-1, podSet.Count-1), slots(info, trainJob))
		// Neither factor has more than 31 bits. The line has few.
		pods := int(podSet.Replicas) * int(max(podSet.Count, 0))
		if pods > maxHostfileBytes {
			bytes = maxHostfileBytes + 1
			break
		}
		bytes += pods * len(longest)
	}
	if bytes > maxHostfileBytes {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "trainer", "numNodes"), numNodes(info),
			fmt.Sprintf("is too large: the hostfile would have more than the %d bytes of a ConfigMap", maxHostfileBytes))}
	}
	return nil
}

func numNodes(info *runtime.Info) int64 {
	nodes := int64(0)
	for _, podSet := range hosts(info) {
		nodes += int64(podSet.Replicas) * int64(podSet.Count)
	}
	return nodes
}

func hostfileLine(host string, slots int32) string {
	return fmt.Sprintf("%s slots=%d\n", host, slots)
}

// hostfileConfigMap returns the list of nodes, in Open MPI's form.
func hostfileConfigMap(info *runtime.Info, trainJob *v1alpha1.TrainJob) *corev1.ConfigMap {
	var hostfile strings.Builder
	for _, podSet := range hosts(info) {
		for host := range podSet.Endpoints {
			hostfile.WriteString(hostfileLine(host, slots(info, trainJob)))
		}
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: child.Metadata(trainJob, hostfileName(trainJob)),
		Data:       map[string]string{hostfileKey: hostfile.String()},
	}
}
