// Package webhooks checks TrainJobs and training runtimes before they are stored, at the paths of Kubeflow
// Trainer's webhooks. The controller makes the same checks: without webhooks a user learns of an error from the
// TrainJob's Failed condition.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/snapshot"
)

// Names of the webhook configurations: Kubeflow Trainer's own, so that one installation takes the other's
// place.
const (
	ValidatingConfiguration = "validator.trainer.kubeflow.org"
	MutatingConfiguration   = "defaulter.trainer.kubeflow.org"
)

// Options say where the webhooks are reached. The port is an option of the manager's webhook server.
type Options struct {
	// Service is the Service that the webhook configurations name. The certificate is for its DNS name, and is
	// kept in the Secret SecretName of the same namespace.
	Service types.NamespacedName

	// CertDir is the directory where that Secret is mounted, and the CertDir of the manager's webhook server.
	CertDir string
}

// SecretName returns the name of the Secret with the certificate of a Service.
func SecretName(service string) string {
	return service + "-cert"
}

// Setup has a manager serve the webhooks once their certificate is there. The manager is not ready before.
func Setup(mgr ctrl.Manager, opts Options, f *framework.Framework, runtimes *snapshot.Store) error {
	server := &webhookServer{
		ready:      make(chan struct{}),
		registered: make(chan struct{}),
		mgr:        mgr,
		register: func() error {
			return errors.Join(
				ctrl.NewWebhookManagedBy(mgr, &v1alpha1.TrainJob{}).
					WithDefaulter(&trainJobDefaulter{clock: clock.RealClock{}}).
					WithValidator(&trainJobValidator{framework: f, runtimes: runtimes, jobSets: mgr.GetClient()}).
					Complete(),
				ctrl.NewWebhookManagedBy(mgr, &v1alpha1.TrainingRuntime{}).
					WithValidator(&runtimeValidator[*v1alpha1.TrainingRuntime]{
						kind: v1alpha1.TrainingRuntimeKind, framework: f,
						spec: func(r *v1alpha1.TrainingRuntime) *v1alpha1.TrainingRuntimeSpec { return &r.Spec },
					}).
					Complete(),
				ctrl.NewWebhookManagedBy(mgr, &v1alpha1.ClusterTrainingRuntime{}).
					WithValidator(&runtimeValidator[*v1alpha1.ClusterTrainingRuntime]{
						kind: v1alpha1.ClusterTrainingRuntimeKind, framework: f,
						spec: func(r *v1alpha1.ClusterTrainingRuntime) *v1alpha1.TrainingRuntimeSpec { return &r.Spec },
					}).
					Complete(),
			)
		},
	}
	if err := rotateCertificates(mgr, opts, server.ready); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhooks", server.check); err != nil {
		return err
	}
	return mgr.Add(server)
}

// webhookServer registers the webhooks when their certificate is ready: the server of controller-runtime does
// not start without one.
type webhookServer struct {
	ready      chan struct{}
	registered chan struct{}
	mgr        ctrl.Manager
	register   func() error
}

var (
	_ manager.Runnable               = (*webhookServer)(nil)
	_ manager.LeaderElectionRunnable = (*webhookServer)(nil)
)

// Start implements manager.Runnable.
func (s *webhookServer) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ready:
	}
	if err := s.register(); err != nil {
		return err
	}
	close(s.registered)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers.
func (*webhookServer) NeedLeaderElection() bool {
	return false
}

// check is a readiness probe.
func (s *webhookServer) check(request *http.Request) error {
	select {
	case <-s.registered:
		return s.mgr.GetWebhookServer().StartedChecker()(request)
	default:
		return errors.New("the webhooks wait for their certificate")
	}
}
