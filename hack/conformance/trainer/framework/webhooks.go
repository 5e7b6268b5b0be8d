package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
)

// Where the manifests put the webhooks.
const (
	namespace  = "muster-system"
	service    = "muster-webhooks"
	secretName = "muster-webhooks-cert"
)

// installWebhooks creates what Muster's manifests have for webhooks. There is no network of Services: the Service
// names this host, and the configurations the port of the process.
func installWebhooks(ctx context.Context, kube client.Client, dir string, port int) error {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configurations, err := os.ReadFile(filepath.Join(dir, "configurations.yaml"))
	if err != nil {
		return err
	}
	documents := strings.Split(string(configurations), "\n---\n")
	if len(documents) != 2 {
		return fmt.Errorf("configurations.yaml has %d documents", len(documents))
	}
	if err := errors.Join(yaml.UnmarshalStrict([]byte(documents[0]), mutating), yaml.UnmarshalStrict([]byte(documents[1]), validating)); err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.Service.Port = ptr.To(int32(port))
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.Service.Port = ptr.To(int32(port))
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}},
		mutating, validating,
	} {
		if err := kube.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// mountSecret brings the certificate into a directory as a kubelet does, until the context is done: a file appears
// whole or not at all, and the one that Muster waits for comes last.
func mountSecret(ctx context.Context, kube client.Client, dir string) {
	defer ginkgo.GinkgoRecover()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		secret := &corev1.Secret{}
		if kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secretName}, secret) != nil {
			return
		}
		for _, name := range []string{"ca.crt", "tls.key", "tls.crt"} {
			file := filepath.Join(dir, name)
			content, ok := secret.Data[name]
			if old, err := os.ReadFile(file); !ok || err == nil && string(old) == string(content) {
				continue
			}
			if os.WriteFile(file+".part", content, 0o600) == nil {
				_ = os.Rename(file+".part", file)
			}
		}
	}, 50*time.Millisecond)
}

// webhooksAnswer returns nil once the API server asks Muster about runtimes and TrainJobs.
func webhooksAnswer(ctx context.Context, kube client.Client) error {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "probe-"}
	spec := trainer.TrainingRuntimeSpec{MLPolicy: &trainer.MLPolicy{NumNodes: ptr.To[int32](1)}}
	for _, wrong := range []client.Object{
		&trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: spec},
		&trainer.TrainingRuntime{ObjectMeta: meta, Spec: spec},
		&trainer.TrainJob{ObjectMeta: meta, Spec: trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "nowhere"}}},
	} {
		err := kube.Create(ctx, wrong, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "denied the request") {
			return fmt.Errorf("a %T that is wrong: %v", wrong, err)
		}
	}
	return nil
}

// takeLease makes somebody else hold the controllers' lease, so that Muster serves webhooks, as every replica does,
// and controls nothing.
func takeLease(ctx context.Context, kube client.Client) error {
	now := metav1.NowMicro()
	return kube.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "muster-controllers"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("suite"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now,
		},
	})
}
