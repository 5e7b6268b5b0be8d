package app

import (
	"strings"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestStatusServerOptions(t *testing.T) {
	opts, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Controllers.statusServer() != nil {
		t.Error("there is a status server without the gate")
	}
	opts, err = parse(t, "--trainer-feature-gates=TrainJobStatus=true", "--trainer-concurrency=7",
		"--trainer-status-bind-address=127.0.0.1:1", "--trainer-status-url=https://status.ns.svc:1", "--trainer-status-cert-dir=/certs",
		"--trainer-status-qps=2.5", "--trainer-status-burst=3")
	if err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Errorf("invalid: %v", errs)
	}
	s := opts.Controllers.statusServer()
	if s == nil || s.BindAddress != "127.0.0.1:1" || s.URL != "https://status.ns.svc:1" || s.CertDir != "/certs" || s.QPS != 2.5 || s.Burst != 3 {
		t.Errorf("got %+v", s)
	}
	if opts.Controllers.TrainerConcurrency != 7 {
		t.Errorf("concurrency %d", opts.Controllers.TrainerConcurrency)
	}
	again, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if again.Controllers.statusServer() != nil {
		t.Error("the first run's gate reaches the second")
	}
	if _, err := parse(t, "--trainer-feature-gates=TrainJobStatuses=true"); err == nil || !strings.Contains(err.Error(), "TrainJobStatuses") {
		t.Errorf("an unknown gate: %v", err)
	}
}

func TestValidateStatusServer(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--trainer-status-bind-address=0", `--trainer-status-bind-address: "0" is not host:port`},
		{"--trainer-status-bind-address=10443", `--trainer-status-bind-address: "10443" is not host:port`},
		{"--trainer-status-url=http://status:1", `--trainer-status-url: "http://status:1" is not https://HOST:PORT`},
		{"--trainer-status-url=https://status:1/path", "--trainer-status-url"},
		{"--trainer-status-url=", "--trainer-status-url"},
		{"--trainer-status-cert-dir=", "--trainer-status-cert-dir: must not be empty"},
		{"--trainer-status-qps=0", "--trainer-status-qps: must be positive, is 0"},
		{"--trainer-status-burst=0", "--trainer-status-burst: must be positive, is 0"},
		{"--controllers=podgroup", "--trainer-feature-gates: TrainJobStatus has no meaning without trainer in --controllers"},
		{"--trainer-concurrency=0", "--trainer-concurrency: must be positive, is 0"},
	} {
		opts, err := parse(t, "--trainer-feature-gates=TrainJobStatus=true", test.arg)
		if err != nil {
			t.Fatal(err)
		}
		if err := utilerrors.NewAggregate(opts.Validate()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.arg, err, test.want)
		}
		// Without the gate nobody looks at the options.
		if strings.HasPrefix(test.arg, "--trainer-status") {
			if opts, err = parse(t, test.arg); err != nil {
				t.Fatal(err)
			}
			if errs := opts.Validate(); len(errs) > 0 {
				t.Errorf("%s without the gate: %v", test.arg, errs)
			}
		}
	}
}
