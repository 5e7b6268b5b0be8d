package app

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/muster-sched/muster/trainer/statusserver"
)

// trainJobStatus is Kubeflow Trainer's feature gate of the same name: training pods report their progress to
// a status server.
const trainJobStatus featuregate.Feature = "TrainJobStatus"

// trainerGates returns the gates of the trainer, at their defaults. They are apart from Kubernetes' own,
// which the scheduler's --feature-gates sets.
func trainerGates() featuregate.MutableFeatureGate {
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		trainJobStatus: {Default: false, PreRelease: featuregate.Alpha},
	}); err != nil {
		// The only gates of a new registry.
		panic(err)
	}
	return gates
}

// defaultStatusServer is where the manifests put it.
func defaultStatusServer() statusserver.Options {
	return statusserver.Options{
		BindAddress: ":10443",
		URL:         "https://muster-webhooks.muster-system.svc:10443",
		CertDir:     "/etc/muster-webhooks",
		QPS:         5,
		Burst:       10,
	}
}

func (c *ControllerOptions) addStatusServerFlags(fs *pflag.FlagSet) {
	fs.Var(c.TrainerGates.(pflag.Value), "trainer-feature-gates",
		"Feature gates of the trainer, as GATE=true or false: "+strings.Join(c.TrainerGates.KnownFeatures(), "; "))
	s := &c.TrainerStatusServer
	fs.StringVar(&s.BindAddress, "trainer-status-bind-address", s.BindAddress,
		"Where training pods report their progress over HTTPS, with the gate TrainJobStatus.")
	fs.StringVar(&s.URL, "trainer-status-url", s.URL,
		"How training pods reach the trainer-status-bind-address: https://HOST:PORT, usually of a Service.")
	fs.StringVar(&s.CertDir, "trainer-status-cert-dir", s.CertDir,
		"The directory with the certificate for trainer-status-url in tls.crt and tls.key, and its authority in ca.crt.")
	fs.Float32Var(&s.QPS, "trainer-status-qps", s.QPS,
		"How many requests a second progress reports may cost the API server.")
	fs.IntVar(&s.Burst, "trainer-status-burst", s.Burst,
		"How many requests progress reports may cost the API server at once.")
}

// statusServer returns what the trainer must know about its status server, nil if it has none.
func (c *ControllerOptions) statusServer() *statusserver.Options {
	if !c.TrainerGates.Enabled(trainJobStatus) {
		return nil
	}
	return &c.TrainerStatusServer
}

// validateStatusServer checks the options of the status server, if there is to be one.
func (c *ControllerOptions) validateStatusServer(trainerRuns bool) []error {
	if !c.TrainerGates.Enabled(trainJobStatus) {
		return nil
	}
	if !trainerRuns {
		return []error{fmt.Errorf("--trainer-feature-gates: %s has no meaning without %s in --controllers", trainJobStatus, trainerName)}
	}
	var errs []error
	s := &c.TrainerStatusServer
	if err := validateBindAddress(s.BindAddress); err != nil || s.BindAddress == noServing {
		errs = append(errs, fmt.Errorf("--trainer-status-bind-address: %q is not host:port", s.BindAddress))
	}
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, fmt.Errorf("--trainer-status-url: %q is not https://HOST:PORT", s.URL))
	}
	if s.CertDir == "" {
		errs = append(errs, fmt.Errorf("--trainer-status-cert-dir: must not be empty"))
	}
	if s.QPS <= 0 {
		errs = append(errs, fmt.Errorf("--trainer-status-qps: must be positive, is %g", s.QPS))
	}
	if s.Burst < 1 {
		errs = append(errs, fmt.Errorf("--trainer-status-burst: must be positive, is %d", s.Burst))
	}
	return errs
}
