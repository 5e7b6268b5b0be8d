package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	loopback              = "127.0.0.1"
	serviceCIDR           = "10.96.0.0/16"
	serviceIP             = "10.96.0.1" // of the Service kubernetes: the first address of serviceCIDR
	serviceAccountKeyFile = "service-account.key"
)

func (c *Cluster) startAPIServer(ctx context.Context, etcdURL string) error {
	listener, err := c.listen()
	if err != nil {
		return err
	}
	served := false
	defer func() {
		if !served {
			_ = listener.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	server := fmt.Sprintf("https://%s:%d", loopback, port)
	if err := c.openClient(server); err != nil {
		return err
	}
	opts, err := c.apiServerOptions(port, etcdURL)
	if err != nil {
		return err
	}
	opts.SecureServing.Listener = listener
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := c.setFeatureGates(); err != nil {
		return err
	}

	informerName, err := cache.NewInformerName("kube-apiserver")
	if err != nil {
		return err
	}
	c.onStop(informerName.Release)
	opts.InformerName = informerName

	// Completing options starts goroutines; they must live as long as the server.
	completeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.onStop(cancel)
	completed, err := opts.Complete(completeCtx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	served = true
	c.run(ctx, "kube-apiserver", func(ctx context.Context) error { return apiserver.Run(ctx, completed) })
	// A server that is stopped before its start hooks are through ends the process; so a cancelled
	// start waits for them too.
	if err := c.await(context.WithoutCancel(ctx), "/readyz", func(ctx context.Context) (bool, error) {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	}); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// listen opens the API server's port: the one that the data directory's kubeconfig names, so that
// copies of it stay valid, or else a free one.
func (c *Cluster) listen() (net.Listener, error) {
	if config, err := clientcmd.BuildConfigFromFlags("", c.file("kubeconfig")); err == nil {
		if server, err := url.Parse(config.Host); err == nil {
			if listener, err := net.Listen("tcp", server.Host); err == nil {
				return listener, nil
			}
		}
	}
	return net.Listen("tcp", loopback+":0")
}

func (c *Cluster) apiServerOptions(port int, etcdURL string) (*options.ServerRunOptions, error) {
	serverCert, serverKey, err := c.ca.issueFiles(c.dir, "kube-apiserver", pkix.Name{CommonName: "kube-apiserver"},
		loopback, serviceIP, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	etcdCert, etcdKey, err := c.ca.issueFiles(c.dir, "kube-apiserver-etcd", pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-cafile=" + c.file("ca.crt"),
		"--etcd-certfile=" + etcdCert,
		"--etcd-keyfile=" + etcdKey,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--client-ca-file=" + c.file("ca.crt"),
		"--tls-cert-file=" + serverCert,
		"--tls-private-key-file=" + serverKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file(serviceAccountKeyFile),
		"--service-account-signing-key-file=" + c.file(serviceAccountKeyFile),
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
	}
	if len(c.config.RuntimeConfig) > 0 {
		args = append(args, "--runtime-config="+flagValue(c.config.RuntimeConfig))
	}
	opts := options.NewServerRunOptions()
	return opts, parse(opts.Flags(), args)
}

// setFeatureGates sets the gates in the registry that all components of the process share, and has
// Stop put them back, so that the next cluster of the process starts from the defaults.
func (c *Cluster) setFeatureGates() error {
	gates := utilfeature.DefaultMutableFeatureGate
	// A registry never forgets a setting that it has refused, so a copy is asked first.
	if err := gates.DeepCopy().SetFromMap(c.config.FeatureGates); err != nil {
		return fmt.Errorf("featureGates: %w", err)
	}
	names := slices.Collect(maps.Keys(c.config.FeatureGates))
	if slices.Contains(names, "AllAlpha") || slices.Contains(names, "AllBeta") {
		for name := range gates.GetAll() {
			names = append(names, string(name))
		}
	}
	c.onStop(func() {
		for _, name := range names {
			// Fails only for a name that the registry does not know.
			_ = gates.ResetFeatureValueToDefault(featuregate.Feature(name))
		}
	})
	return gates.SetFromMap(c.config.FeatureGates)
}
