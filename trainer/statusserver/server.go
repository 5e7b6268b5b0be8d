// Package statusserver takes progress reports from the training pods of TrainJobs, at the address and in the
// form of Kubeflow Trainer's status server, and writes them to the TrainJobs' status.
package statusserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Files of the certificate directory, as in a Secret of type kubernetes.io/tls with the authority beside it.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

const (
	readTimeout     = 10 * time.Second
	writeTimeout    = 10 * time.Second
	idleTimeout     = 120 * time.Second
	shutdownTimeout = 5 * time.Second

	// certificatePoll is how often the server looks for its certificate until there is one.
	certificatePoll = time.Second
)

// Options say where the server is and how much it may ask of the API server.
type Options struct {
	// BindAddress is where reports are taken over HTTPS.
	BindAddress string

	// URL is how pods reach the server, without a path: https://SERVICE.NAMESPACE.svc:PORT.
	URL string

	// CertDir has the server's certificate in tls.crt and tls.key, and its authority in ca.crt. The server
	// waits until they are there, and follows their changes.
	CertDir string

	// QPS and Burst limit the requests to the API server, apart from the controller's.
	QPS   float32
	Burst int
}

// CAFile is the file with the authority of the server's certificate.
func (o *Options) CAFile() string {
	return filepath.Join(o.CertDir, caFile)
}

// Setup adds the server, on every replica, and its readiness to a manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	config := rest.CopyConfig(mgr.GetConfig())
	// One limit for both clients.
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(opts.QPS, opts.Burst)
	kube, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	writer, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	s := newServer(opts, newAuthenticator(kube, mgr.GetClient()), writer)
	return errors.Join(mgr.Add(s), mgr.AddReadyzCheck("trainjob-status", s.ready))
}

// server is the HTTPS server.
type server struct {
	options Options
	handler http.Handler
	serving atomic.Bool
}

var (
	_ manager.Runnable               = (*server)(nil)
	_ manager.LeaderElectionRunnable = (*server)(nil)
)

func newServer(opts Options, tokens authenticator.Token, c client.Client) *server {
	return &server{options: opts, handler: newHandler(tokens, c)}
}

// Start implements manager.Runnable: it serves until ctx is done, and then lets the reports in flight end.
func (s *server) Start(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("statusserver")
	certificate, err := s.certificate(ctx)
	if err != nil {
		// Asked to end before there was one.
		return nil
	}
	listener, err := tls.Listen("tcp", s.options.BindAddress, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: certificate.GetCertificate,
	})
	if err != nil {
		return fmt.Errorf("status server: %w", err)
	}
	watched := make(chan error, 1)
	go func() { watched <- certificate.Start(ctx) }()
	logger.Info("Taking progress reports", "address", listener.Addr().String())
	s.serving.Store(true)
	defer s.serving.Store(false)
	err = (&manager.Server{
		Name:     "statusserver",
		Listener: listener,
		Server: &http.Server{
			Handler:           s.handler,
			ReadTimeout:       readTimeout,
			ReadHeaderTimeout: readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
		},
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}).Start(ctx)
	if ctx.Err() == nil {
		return err
	}
	return errors.Join(err, <-watched)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers.
func (*server) NeedLeaderElection() bool {
	return false
}

// certificate waits for the certificate. It returns an error only if ctx is done.
func (s *server) certificate(ctx context.Context) (*certwatcher.CertWatcher, error) {
	var certificate *certwatcher.CertWatcher
	err := wait.PollUntilContextCancel(ctx, certificatePoll, true, func(context.Context) (bool, error) {
		var err error
		certificate, err = certwatcher.New(filepath.Join(s.options.CertDir, certFile), filepath.Join(s.options.CertDir, keyFile))
		return err == nil, nil
	})
	return certificate, err
}

// ready is a readiness probe.
func (s *server) ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the status server waits for its certificate")
	}
	return nil
}
