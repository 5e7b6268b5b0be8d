package app

import (
	"strings"
	"testing"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/muster-sched/muster/podgroup"
)

func TestRendezvousFlags(t *testing.T) {
	opts, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if got := opts.Controllers.Rendezvous; got != podgroup.DefaultRendezvousPolicy() || got.Timeout == 0 {
		t.Errorf("by default: %+v", got)
	}
	opts, err = parse(t, "--rendezvous-timeout=45m", "--rendezvous-limit=0", "--rendezvous-backoff=10s", "--rendezvous-max-backoff=5m")
	if err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	if got, want := opts.Controllers.Rendezvous, (podgroup.RendezvousPolicy{Timeout: 45 * time.Minute, Backoff: 10 * time.Second, MaxBackoff: 5 * time.Minute}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRendezvousFlagsAreChecked(t *testing.T) {
	for arg, want := range map[string]string{
		"--rendezvous-timeout=-1s":                      "--rendezvous-timeout: must not be negative, is -1s",
		"--rendezvous-limit=-1":                         "--rendezvous-limit: must not be negative, is -1",
		"--rendezvous-backoff=-1s":                      "--rendezvous-backoff: must not be negative, is -1s",
		"--rendezvous-backoff=1h":                       "--rendezvous-max-backoff: must not be less than --rendezvous-backoff, which is 1h0m0s, is 30m0s",
		"--rendezvous-timeout=1h --controllers=trainer": "have no meaning without podgroup in --controllers",
	} {
		opts, err := parse(t, strings.Fields(arg)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := utilerrors.NewAggregate(opts.Validate()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", arg, err, want)
		}
	}
}
