package trainjobstatus

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

func trainJob() *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
}

func newInfo(t *testing.T, ancestors ...string) *runtime.Info {
	t.Helper()
	spec := &v1alpha1.TrainingRuntimeSpec{}
	for _, ancestor := range ancestors {
		job := jobsetv1alpha2.ReplicatedJob{Name: "job-" + ancestor}
		job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
		job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node"}, {Name: "sidecar"}}
		spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, job)
	}
	info, err := runtime.New(trainJob(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestInjection(t *testing.T) {
	info := newInfo(t, "dataset-initializer", "trainer")
	pod := info.Trainer().PodSpec()
	pod.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "mine", MountPath: "/var/run/secrets/kubeflow/trainer"}}
	untouched := info.PodSets[0].PodSpec().DeepCopy()
	plugin := New(nil, "https://status:10443", "")
	for range 2 { // the second time changes nothing
		if err := plugin.EnforceMLPolicy(info, trainJob()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(untouched, info.PodSets[0].PodSpec()); diff != "" {
		t.Errorf("the initializer (-before +after)\n%s", diff)
	}
	const dir = "/var/run/secrets/kubeflow/trainer"
	env := []corev1.EnvVar{
		{Name: "KUBEFLOW_TRAINER_SERVER_URL", Value: "https://status:10443/apis/trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/llm/status"},
		{Name: "KUBEFLOW_TRAINER_SERVER_CA_CERT", Value: dir + "/ca.crt"},
		{Name: "KUBEFLOW_TRAINER_SERVER_TOKEN", Value: dir + "/token"},
	}
	mount := corev1.VolumeMount{Name: "kubeflow-trainer-token", MountPath: dir, ReadOnly: true}
	want := corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "node", Env: env, VolumeMounts: []corev1.VolumeMount{mount}},
			{Name: "sidecar", Env: env, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, mount}},
		},
		Volumes: []corev1.Volume{{Name: "kubeflow-trainer-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: "trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/llm/status", ExpirationSeconds: ptr.To[int64](3600), Path: "token",
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "llm-tls-config"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
		}}}}},
	}
	if diff := cmp.Diff(want, *pod); diff != "" {
		t.Errorf("training pod (-want +got)\n%s", diff)
	}
}

// A new authority reaches the pods of a running TrainJob too.
func TestAuthorityIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, jobsetv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	running := &jobsetv1alpha2.JobSet{ObjectMeta: child.Metadata(trainJob(), "llm")}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(running).Build()
	plugin := New(child.New(c, c), "https://status:10443", file)
	info := newInfo(t, "trainer")
	if _, err := plugin.Build(t.Context(), info, trainJob()); err == nil {
		t.Error("no error without an authority")
	}
	for _, ca := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(ca), 0o600); err != nil {
			t.Fatal(err)
		}
		objects, err := plugin.Build(t.Context(), info, trainJob())
		if err != nil {
			t.Fatal(err)
		}
		if err := plugin.Sync(t.Context(), trainJob(), objects); err != nil {
			t.Fatal(err)
		}
		config := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "research", Name: "llm-tls-config"}, config); err != nil {
			t.Fatal(err)
		}
		if config.Data["ca.crt"] != ca || !metav1.IsControlledBy(config, trainJob()) {
			t.Errorf("ConfigMap = %+v, want %s", config, ca)
		}
	}
	if objects, err := plugin.Build(t.Context(), newInfo(t, "dataset-initializer"), trainJob()); objects != nil || err != nil {
		t.Errorf("without training pods: %v, %v", objects, err)
	}
}
