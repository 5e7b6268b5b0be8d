// Package trainjobstatus gives the training pods of a TrainJob what they need to report their progress: the
// address of the status server, its certificate authority, and a token for this one TrainJob.
package trainjobstatus

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "TrainJobStatus"

// The environment of the training containers. The values of the last two are names of files.
const (
	envURL    = "KUBEFLOW_TRAINER_SERVER_URL"
	envCACert = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
	envToken  = "KUBEFLOW_TRAINER_SERVER_TOKEN"
)

const (
	volumeName   = "kubeflow-trainer-token"
	mountPath    = "/var/run/secrets/kubeflow/trainer"
	caFile       = "ca.crt"
	tokenFile    = "token"
	tokenSeconds = 3600
)

// Path returns the path at which the status server takes the reports of a TrainJob.
func Path(namespace, name string) string {
	return fmt.Sprintf("/apis/%s/namespaces/%s/trainjobs/%s/status", v1alpha1.GroupVersion, namespace, name)
}

// Audience returns the audience of the tokens that may report on a TrainJob, and on nothing else.
func Audience(namespace, name string) string {
	return fmt.Sprintf("%s/namespaces/%s/trainjobs/%s/status", v1alpha1.GroupVersion, namespace, name)
}

// TrainJobStatus injects the reporting into the training pods, and owns the ConfigMap with the certificate
// authority.
type TrainJobStatus struct {
	keeper *child.Keeper
	url    string
	caFile string
}

var (
	_ framework.MLPolicyPlugin  = (*TrainJobStatus)(nil)
	_ framework.ComponentPlugin = (*TrainJobStatus)(nil)
)

// New makes the plugin. url is the status server's, without a path; caFile has the certificate authority of
// its certificate, and is read again each time.
func New(keeper *child.Keeper, url, caFile string) *TrainJobStatus {
	return &TrainJobStatus{keeper: keeper, url: url, caFile: caFile}
}

// Name implements framework.Plugin.
func (*TrainJobStatus) Name() string {
	return Name
}

// EnforceMLPolicy implements framework.MLPolicyPlugin: it does the same for every ML policy.
func (t *TrainJobStatus) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	trainer := info.Trainer()
	if trainer == nil {
		return nil
	}
	pod := trainer.PodSpec()
	for i := range pod.Containers {
		container := &pod.Containers[i]
		runtime.SetEnv(container,
			corev1.EnvVar{Name: envURL, Value: t.url + Path(trainJob.Namespace, trainJob.Name)},
			corev1.EnvVar{Name: envCACert, Value: mountPath + "/" + caFile},
			corev1.EnvVar{Name: envToken, Value: mountPath + "/" + tokenFile},
		)
		mount := corev1.VolumeMount{Name: volumeName, MountPath: mountPath, ReadOnly: true}
		container.VolumeMounts = upsert(container.VolumeMounts, mount, func(m corev1.VolumeMount) string { return m.MountPath })
	}
	pod.Volumes = upsert(pod.Volumes, volume(trainJob), func(v corev1.Volume) string { return v.Name })
	return nil
}

func volume(trainJob *v1alpha1.TrainJob) corev1.Volume {
	return corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience:          Audience(trainJob.Namespace, trainJob.Name),
				ExpirationSeconds: ptr.To[int64](tokenSeconds),
				Path:              tokenFile,
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMapName(trainJob)},
				Items:                []corev1.KeyToPath{{Key: caFile, Path: caFile}},
			}},
		},
	}}}
}

// upsert replaces the element of the same key where it stands, or appends it.
func upsert[T any](list []T, element T, key func(T) string) []T {
	for i := range list {
		if key(list[i]) == key(element) {
			list[i] = element
			return list
		}
	}
	return append(list, element)
}

func configMapName(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + "-tls-config"
}

// Build implements framework.ComponentPlugin.
func (t *TrainJobStatus) Build(_ context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	if info.Trainer() == nil {
		return nil, nil
	}
	ca, err := os.ReadFile(t.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the status server's certificate authority: %w", err)
	}
	return []client.Object{&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: child.Metadata(trainJob, configMapName(trainJob)),
		Data:       map[string]string{caFile: string(ca)},
	}}, nil
}

// Sync implements framework.ComponentPlugin. Other than what pods mount else, the ConfigMap changes while they
// run: with a new certificate authority they could report no more.
func (t *TrainJobStatus) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	for _, object := range objects {
		if err := t.keeper.ConfigMap(ctx, trainJob, object.(*corev1.ConfigMap)); err != nil {
			return err
		}
	}
	return nil
}

// Finish implements framework.ComponentPlugin. The last reports may still come; the ConfigMap goes with the
// TrainJob.
func (*TrainJobStatus) Finish(context.Context, *v1alpha1.TrainJob) error {
	return nil
}
