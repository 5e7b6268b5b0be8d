package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane/jobset"
)

// startJobSet runs JobSet's controllers and points its webhooks at this process.
func (c *Cluster) startJobSet(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	manager, err := c.jobSetManager(ctx, port)
	if err != nil {
		return err
	}
	c.run(ctx, "jobset", manager.Start)
	started := manager.GetWebhookServer().StartedChecker()
	if err := c.await(ctx, "webhook server", func(context.Context) (bool, error) { return started(nil) == nil, nil }); err != nil {
		return err
	}
	return c.installJobSetWebhooks(ctx, manager.GetClient(), port)
}

func (c *Cluster) jobSetManager(ctx context.Context, port int) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := jobsetapi.AddToScheme(scheme); err != nil {
		return nil, err
	}
	certDir := c.file("jobset-webhook")
	if err := os.MkdirAll(certDir, 0o700); err != nil {
		return nil, err
	}
	if _, _, err := c.ca.issueFiles(certDir, "tls", pkix.Name{CommonName: "jobset-webhook"}, loopback); err != nil {
		return nil, err
	}
	manager, err := ctrl.NewManager(c.REST(), ctrl.Options{
		Scheme:  scheme,
		Logger:  klog.Background().WithName("jobset"),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// A process that starts a second cluster registers the same controllers again.
		Controller:    config.Controller{SkipNameValidation: ptr.To(true)},
		WebhookServer: webhook.NewServer(webhook.Options{Host: loopback, Port: port, CertDir: certDir}),
	})
	if err != nil {
		return nil, err
	}
	for _, setup := range []func() error{
		func() error { return controllers.SetupJobSetIndexes(ctx, manager.GetFieldIndexer()) },
		func() error { return controllers.SetupPodIndexes(ctx, manager.GetFieldIndexer()) },
		func() error {
			return controllers.NewJobSetReconciler(manager.GetClient(), scheme, manager.GetEventRecorder("jobset")).SetupWithManager(manager)
		},
		func() error {
			return controllers.NewPodReconciler(manager.GetClient(), scheme, manager.GetEventRecorder("pod")).SetupWithManager(manager)
		},
		func() error { return webhooks.Setup(manager) },
	} {
		if err := setup(); err != nil {
			return nil, err
		}
	}
	return manager, nil
}

// installJobSetWebhooks creates the webhook configurations. A kept data directory has some that point at
// a port of the past; they are replaced.
func (c *Cluster) installJobSetWebhooks(ctx context.Context, writer client.Client, port int) error {
	caPEM, err := cert.EncodeCertificates(c.ca.certificate)
	if err != nil {
		return err
	}
	direct := func(config *admissionv1.WebhookClientConfig) {
		url := fmt.Sprintf("https://%s:%d%s", loopback, port, ptr.Deref(config.Service.Path, ""))
		*config = admissionv1.WebhookClientConfig{URL: &url, CABundle: caPEM}
	}
	mutating, err := jobset.MutatingWebhooks()
	if err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		direct(&mutating.Webhooks[i].ClientConfig)
	}
	validating, err := jobset.ValidatingWebhooks()
	if err != nil {
		return err
	}
	for i := range validating.Webhooks {
		direct(&validating.Webhooks[i].ClientConfig)
	}
	for _, object := range []client.Object{mutating, validating} {
		object.SetName("jobset-" + object.GetName())
		if err := ignore(writer.Delete(ctx, object), apierrors.IsNotFound); err != nil {
			return err
		}
		if err := writer.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// freePort returns a port of the loopback interface that nobody listens on, for servers that cannot
// be handed a listener.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
