package app

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	componentbaseconfig "k8s.io/component-base/config"
	configvalidation "k8s.io/component-base/config/validation"
	"k8s.io/component-base/featuregate"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/trainer/statusserver"
)

// Options is all that the command line says.
type Options struct {
	// Scheduler has kube-scheduler's own options.
	Scheduler *schedoptions.Options

	// RunScheduler is false where only the controllers run.
	RunScheduler bool

	// Controllers says which controllers run, and how.
	Controllers ControllerOptions
}

// ControllerOptions are the options of the embedded controllers.
type ControllerOptions struct {
	// Names are the controllers that run: podgroup, trainer. None leaves a bare scheduler.
	Names []string

	// MetricsBindAddress is where metrics are served over HTTPS, to clients that the API server
	// authenticates and allows to get the path /metrics; "0" means nowhere.
	MetricsBindAddress string

	// HealthProbeBindAddress is where /healthz and /readyz are served over HTTP; "0" means nowhere.
	HealthProbeBindAddress string

	// LeaderElection is apart from the scheduler's: the controllers have a lease of their own, and
	// the leaders of the two halves may be different processes.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration

	// PodGroupTTL is how long a PodGroup without a controller is kept after its gang finished; 0 keeps
	// it for ever.
	PodGroupTTL time.Duration

	// PodGroupAdopt makes the controller that all members share the owner of a PodGroup without one, so
	// that the PodGroup goes with it.
	PodGroupAdopt bool

	// Rendezvous says when gangs are released whose members do not meet.
	Rendezvous podgroup.RendezvousPolicy

	// TrainerSchedulerName is the schedulerName that the trainer gives to the pods of a TrainJob
	// that asks for gang scheduling. Empty leaves the name to the runtime's pod templates.
	TrainerSchedulerName string

	// TrainerConcurrency is the number of TrainJobs that are worked on at the same time.
	TrainerConcurrency int

	// TrainerGates are the trainer's feature gates.
	TrainerGates featuregate.MutableFeatureGate

	// TrainerStatusServer is where training pods report their progress, with the gate TrainJobStatus.
	TrainerStatusServer statusserver.Options

	// TrainerWebhooks makes the trainer serve admission webhooks for TrainJobs and runtimes. Without them the
	// same checks end in a TrainJob's Failed condition.
	TrainerWebhooks bool

	// TrainerWebhooksBindAddress is where the webhooks are served over HTTPS.
	TrainerWebhooksBindAddress string

	// TrainerWebhooksService is the Service, as namespace/name, that the webhook configurations name. The
	// certificate is kept in the Secret of that name with the suffix -cert.
	TrainerWebhooksService string

	// TrainerWebhooksCertDir is the directory where that Secret is mounted.
	TrainerWebhooksCertDir string
}

// noServing is the bind address of a server that is turned off.
const noServing = "0"

// NewOptions returns the defaults: the scheduler and all controllers, with leader election.
func NewOptions() *Options {
	opts := &Options{
		Scheduler:    schedoptions.NewOptions(),
		RunScheduler: true,
		Controllers: ControllerOptions{
			Names:                  controllerNames(),
			MetricsBindAddress:     ":8443",
			HealthProbeBindAddress: ":8081",
			Rendezvous:             podgroup.DefaultRendezvousPolicy(),
			TrainerConcurrency:     5,
			TrainerGates:           trainerGates(),
			TrainerStatusServer:    defaultStatusServer(),

			TrainerWebhooksBindAddress: ":9443",
			TrainerWebhooksService:     "muster-system/muster-webhooks",
			TrainerWebhooksCertDir:     "/etc/muster-webhooks",

			LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
				LeaderElect:       true,
				LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
				RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
				RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
				ResourceLock:      "leases",
				ResourceName:      "muster-controllers",
				ResourceNamespace: metav1.NamespaceSystem,
			},
		},
	}
	opts.addFlags()
	return opts
}

// Flags returns all flags by section: kube-scheduler's, and Muster's own under "muster". They set
// the fields of the options.
func (o *Options) Flags() cliflag.NamedFlagSets {
	return *o.Scheduler.Flags
}

func (o *Options) addFlags() {
	fs := o.Scheduler.Flags.FlagSet("muster")
	fs.BoolVar(&o.RunScheduler, "scheduler", o.RunScheduler,
		"Run the scheduler. False runs the controllers alone.")
	c := &o.Controllers
	fs.StringSliceVar(&c.Names, "controllers", c.Names,
		"The controllers to run beside the scheduler, of "+strings.Join(controllerNames(), ", ")+". Empty runs none.")
	fs.StringVar(&c.MetricsBindAddress, "controllers-metrics-bind-address", c.MetricsBindAddress,
		"Where the controllers serve /metrics over HTTPS, to authenticated and authorized clients. 0 turns it off.")
	fs.StringVar(&c.HealthProbeBindAddress, "controllers-health-probe-bind-address", c.HealthProbeBindAddress,
		"Where the controllers serve /healthz and /readyz over HTTP. 0 turns it off.")
	fs.DurationVar(&c.PodGroupTTL, "podgroup-ttl-after-finished", c.PodGroupTTL,
		"How long to keep a PodGroup that has no controller after its gang finished. 0 keeps it.")
	fs.BoolVar(&c.PodGroupAdopt, "podgroup-adopt", c.PodGroupAdopt,
		"Make the controller that all members of a PodGroup share its owner, if it has none, so that the PodGroup is deleted with it.")
	c.addRendezvousFlags(fs)
	fs.StringVar(&c.TrainerSchedulerName, "trainer-scheduler-name", c.TrainerSchedulerName,
		"The schedulerName for the pods of TrainJobs that are gang-scheduled. Empty keeps what the training runtime says.")
	fs.IntVar(&c.TrainerConcurrency, "trainer-concurrency", c.TrainerConcurrency,
		"How many TrainJobs are worked on at the same time.")
	c.addStatusServerFlags(fs)
	c.addWebhookFlags(fs)

	l := &c.LeaderElection
	fs.BoolVar(&l.LeaderElect, "controllers-leader-elect", l.LeaderElect,
		"Let one process at a time run the controllers.")
	fs.DurationVar(&l.LeaseDuration.Duration, "controllers-leader-elect-lease-duration", l.LeaseDuration.Duration,
		"How long a lease that its holder no longer renews keeps others waiting.")
	fs.DurationVar(&l.RenewDeadline.Duration, "controllers-leader-elect-renew-deadline", l.RenewDeadline.Duration,
		"How long the holder tries to renew its lease before it gives up and the process ends. Less than the lease duration.")
	fs.DurationVar(&l.RetryPeriod.Duration, "controllers-leader-elect-retry-period", l.RetryPeriod.Duration,
		"How long to wait between two attempts to take or renew the lease.")
	fs.StringVar(&l.ResourceName, "controllers-leader-elect-resource-name", l.ResourceName,
		"The name of the controllers' lease.")
	fs.StringVar(&l.ResourceNamespace, "controllers-leader-elect-resource-namespace", l.ResourceNamespace,
		"The namespace of the controllers' lease.")
}

// Validate checks Muster's own options; kube-scheduler's are checked when the scheduler is set up.
// Every error names the flag.
func (o *Options) Validate() []error {
	var errs []error
	c := &o.Controllers
	if !o.RunScheduler && len(c.Names) == 0 {
		errs = append(errs, fmt.Errorf("--scheduler=false and no --controllers leave nothing to run"))
	}
	known := controllerNames()
	seen := map[string]bool{}
	for _, name := range c.Names {
		switch {
		case !slices.Contains(known, name):
			errs = append(errs, fmt.Errorf("--controllers: unknown controller %q, known are %s", name, strings.Join(known, ", ")))
		case seen[name]:
			errs = append(errs, fmt.Errorf("--controllers: %q is named twice", name))
		}
		seen[name] = true
	}
	if len(c.Names) == 0 {
		return errs
	}
	if err := validateBindAddress(c.MetricsBindAddress); err != nil {
		errs = append(errs, fmt.Errorf("--controllers-metrics-bind-address: %w", err))
	}
	if err := validateBindAddress(c.HealthProbeBindAddress); err != nil {
		errs = append(errs, fmt.Errorf("--controllers-health-probe-bind-address: %w", err))
	}
	if c.PodGroupTTL < 0 {
		errs = append(errs, fmt.Errorf("--podgroup-ttl-after-finished: must not be negative, is %s", c.PodGroupTTL))
	}
	if c.PodGroupTTL != 0 && !seen[podGroupName] {
		errs = append(errs, fmt.Errorf("--podgroup-ttl-after-finished: has no meaning without %s in --controllers", podGroupName))
	}
	if c.PodGroupAdopt && !seen[podGroupName] {
		errs = append(errs, fmt.Errorf("--podgroup-adopt: has no meaning without %s in --controllers", podGroupName))
	}
	errs = append(errs, c.validateRendezvous(seen[podGroupName])...)
	if c.TrainerSchedulerName != "" && !seen[trainerName] {
		errs = append(errs, fmt.Errorf("--trainer-scheduler-name: has no meaning without %s in --controllers", trainerName))
	}
	if c.TrainerConcurrency < 1 {
		errs = append(errs, fmt.Errorf("--trainer-concurrency: must be positive, is %d", c.TrainerConcurrency))
	}
	errs = append(errs, c.validateStatusServer(seen[trainerName])...)
	errs = append(errs, c.validateWebhooks(seen[trainerName])...)
	for _, err := range configvalidation.ValidateLeaderElectionConfiguration(&c.LeaderElection, field.NewPath("--controllers-leader-elect")) {
		errs = append(errs, err)
	}
	return errs
}

func validateBindAddress(address string) error {
	if address == noServing {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is neither host:port nor %s: %w", address, noServing, err)
	}
	return nil
}
