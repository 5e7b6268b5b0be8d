package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	opts := NewOptions()
	flags := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	flags.SetOutput(t.Output())
	for _, set := range opts.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	return opts, flags.Parse(args)
}

func TestEveryFlagOfKubeSchedulerIsKept(t *testing.T) {
	ours := NewCommand().Flags()
	schedapp.NewSchedulerCommand().Flags().VisitAll(func(theirs *pflag.Flag) {
		flag := ours.Lookup(theirs.Name)
		if flag == nil {
			t.Errorf("--%s is missing", theirs.Name)
			return
		}
		if theirs.Name == "help" {
			return
		}
		if flag.DefValue != theirs.DefValue || flag.Usage != theirs.Usage {
			t.Errorf("--%s: default %q and usage %q, want %q and %q", theirs.Name, flag.DefValue, flag.Usage, theirs.DefValue, theirs.Usage)
		}
	})
}

func TestHelpShowsMustersFlags(t *testing.T) {
	command := NewCommand()
	var help strings.Builder
	command.SetOut(&help)
	command.SetArgs([]string{"--help"})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Muster flags", "--controllers strings", "--scheduler ", "--config string"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("help does not mention %q", want)
		}
	}
}

func TestDefaults(t *testing.T) {
	opts, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Errorf("the defaults are invalid: %v", errs)
	}
	if !opts.RunScheduler {
		t.Error("the scheduler does not run by default")
	}
	if want := []string{"podgroup", "trainer"}; !slices.Equal(opts.Controllers.Names, want) {
		t.Errorf("controllers: want %v, got %v", want, opts.Controllers.Names)
	}
	if opts.Controllers.TrainerSchedulerName != "" {
		t.Errorf("the trainer claims pods for %q without being told to", opts.Controllers.TrainerSchedulerName)
	}
	if opts.Controllers.webhooks() != nil {
		t.Error("webhooks are served without being told to: they need objects that only a deployment has")
	}
	// What manifests/components/webhooks deploys.
	if c := opts.Controllers; c.TrainerWebhooksService != "muster-system/muster-webhooks" || c.TrainerWebhooksBindAddress != ":9443" || c.TrainerWebhooksCertDir != "/etc/muster-webhooks" {
		t.Errorf("webhooks do not fit the manifests: %+v", c)
	}
	election := opts.Controllers.LeaderElection
	if !election.LeaderElect || election.ResourceName == opts.Scheduler.LeaderElection.ResourceName {
		t.Errorf("the controllers need a lease of their own, got %+v", election)
	}
}

func TestFlagsSetTheOptions(t *testing.T) {
	opts, err := parse(t,
		"--scheduler=false",
		"--controllers=trainer",
		"--controllers-metrics-bind-address=127.0.0.1:1",
		"--controllers-health-probe-bind-address=0",
		"--controllers-leader-elect=false",
		"--controllers-leader-elect-lease-duration=30s",
		"--controllers-leader-elect-renew-deadline=20s",
		"--controllers-leader-elect-retry-period=4s",
		"--controllers-leader-elect-resource-name=lease",
		"--controllers-leader-elect-resource-namespace=space",
		"--trainer-scheduler-name=muster-scheduler",
		"--leader-elect-resource-name=other",
	)
	if err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Errorf("invalid: %v", errs)
	}
	c := opts.Controllers
	if opts.RunScheduler || !slices.Equal(c.Names, []string{"trainer"}) || c.MetricsBindAddress != "127.0.0.1:1" ||
		c.HealthProbeBindAddress != "0" || c.TrainerSchedulerName != "muster-scheduler" {
		t.Errorf("got %+v", opts)
	}
	if l := c.LeaderElection; l.LeaderElect || l.LeaseDuration.Duration != 30*time.Second || l.RenewDeadline.Duration != 20*time.Second ||
		l.RetryPeriod.Duration != 4*time.Second || l.ResourceName != "lease" || l.ResourceNamespace != "space" {
		t.Errorf("leader election: got %+v", l)
	}
	if name := opts.Scheduler.LeaderElection.ResourceName; name != "other" {
		t.Errorf("the scheduler's lease: got %q", name)
	}
}

func TestWebhookFlags(t *testing.T) {
	opts, err := parse(t, "--trainer-webhooks", "--trainer-webhooks-bind-address=127.0.0.1:7443",
		"--trainer-webhooks-service=space/gate", "--trainer-webhooks-cert-dir=/certs")
	if err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	webhooks := opts.Controllers.webhooks()
	if webhooks == nil || webhooks.Service.String() != "space/gate" || webhooks.CertDir != "/certs" {
		t.Errorf("webhooks = %+v", webhooks)
	}
	server, err := webhookServer(&opts.Controllers)
	if err != nil {
		t.Fatal(err)
	}
	if options := server.(*webhook.DefaultServer).Options; options.Host != "127.0.0.1" || options.Port != 7443 || options.CertDir != "/certs" {
		t.Errorf("server = %+v", options)
	}
}

func TestOptionsDoNotShareState(t *testing.T) {
	first, err := parse(t, "--controllers=trainer", "--controllers-leader-elect=false", "--leader-elect=false")
	if err != nil {
		t.Fatal(err)
	}
	second, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Controllers.Names) != 1 || len(second.Controllers.Names) != 2 ||
		!second.Controllers.LeaderElection.LeaderElect || !second.Scheduler.LeaderElection.LeaderElect {
		t.Errorf("the first run's flags reach the second: %+v", second)
	}
}

func TestBareScheduler(t *testing.T) {
	opts, err := parse(t, "--controllers=", "--controllers-metrics-bind-address=nonsense")
	if err != nil {
		t.Fatal(err)
	}
	if len(opts.Controllers.Names) != 0 {
		t.Errorf("want no controllers, got %q", opts.Controllers.Names)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Errorf("options of controllers that do not run are not looked at, got %v", errs)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--controllers=podgroup,gang"}, []string{`--controllers: unknown controller "gang", known are podgroup, trainer`}},
		{[]string{"--controllers=PodGroup"}, []string{`--controllers: unknown controller "PodGroup"`}},
		{[]string{"--controllers=trainer,trainer"}, []string{`--controllers: "trainer" is named twice`}},
		{[]string{"--controllers=*"}, []string{`--controllers: unknown controller "*"`}},
		{[]string{"--scheduler=false", "--controllers="}, []string{"--scheduler=false and no --controllers leave nothing to run"}},
		{[]string{"--controllers-metrics-bind-address=8443"}, []string{`--controllers-metrics-bind-address: "8443" is neither host:port nor 0`}},
		{[]string{"--controllers-health-probe-bind-address="}, []string{`--controllers-health-probe-bind-address: "" is neither host:port nor 0`}},
		{[]string{"--podgroup-ttl-after-finished=-1s"}, []string{"--podgroup-ttl-after-finished: must not be negative, is -1s"}},
		{[]string{"--controllers=trainer", "--podgroup-ttl-after-finished=1h"}, []string{"--podgroup-ttl-after-finished: has no meaning without podgroup in --controllers"}},
		{[]string{"--controllers=trainer", "--podgroup-adopt"}, []string{"--podgroup-adopt: has no meaning without podgroup in --controllers"}},
		{[]string{"--controllers=podgroup", "--trainer-scheduler-name=x"}, []string{"--trainer-scheduler-name: has no meaning without trainer in --controllers"}},
		{[]string{"--controllers=podgroup", "--trainer-webhooks"}, []string{"--trainer-webhooks: has no meaning without trainer in --controllers"}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-bind-address=9443"}, []string{`--trainer-webhooks-bind-address: "9443" is not host:port`}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-bind-address=:0"}, []string{`--trainer-webhooks-bind-address: ":0" has no port`}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-bind-address=:https"}, []string{`--trainer-webhooks-bind-address: ":https" has no port`}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-service=muster-webhooks"}, []string{`--trainer-webhooks-service: "muster-webhooks" is not the namespace/name of a Service`}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-service=a/b/c"}, []string{`--trainer-webhooks-service: "a/b/c"`}},
		{[]string{"--trainer-webhooks", "--trainer-webhooks-cert-dir="}, []string{"--trainer-webhooks-cert-dir: must not be empty"}},
		{[]string{"--controllers-leader-elect-renew-deadline=1m"}, []string{"--controllers-leader-elect.leaseDuration: Invalid value", "must be greater than"}},
		{[]string{"--controllers-leader-elect-resource-name="}, []string{"--controllers-leader-elect.resourceName: Required value"}},
		{
			[]string{"--controllers=a,b", "--controllers-metrics-bind-address=x"},
			[]string{`"a"`, `"b"`, "--controllers-metrics-bind-address"},
		},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			opts, err := parse(t, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			err = utilerrors.NewAggregate(opts.Validate())
			if err == nil {
				t.Fatal("want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in %v", want, err)
				}
			}
		})
	}
}
