package app

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/podgroup"
)

func (o *ControllerOptions) addRendezvousFlags(fs *pflag.FlagSet) {
	r := &o.Rendezvous
	fs.DurationVar(&r.Timeout, "rendezvous-timeout", r.Timeout,
		"How long a gang may hold places until enough of its members are ready, before it is released whole. 0 means for ever. "+
			"The annotation "+podgroup.RendezvousTimeoutAnnotation+" of a PodGroup wins.")
	fs.IntVar(&r.Limit, "rendezvous-limit", r.Limit,
		"How many rendezvous of a gang may time out in a row before it is given up and its PodGroup Failed. 0 means any number.")
	fs.DurationVar(&r.Backoff, "rendezvous-backoff", r.Backoff,
		"How long a gang rests after its first release. The time doubles with each release.")
	fs.DurationVar(&r.MaxBackoff, "rendezvous-max-backoff", r.MaxBackoff,
		"The longest that a gang rests after a release.")
}

func (o *ControllerOptions) validateRendezvous(run bool) []error {
	var errs []error
	r := o.Rendezvous
	if r.Timeout < 0 {
		errs = append(errs, fmt.Errorf("--rendezvous-timeout: must not be negative, is %s", r.Timeout))
	}
	if r.Limit < 0 {
		errs = append(errs, fmt.Errorf("--rendezvous-limit: must not be negative, is %d", r.Limit))
	}
	if r.Backoff < 0 {
		errs = append(errs, fmt.Errorf("--rendezvous-backoff: must not be negative, is %s", r.Backoff))
	}
	if r.MaxBackoff < r.Backoff {
		errs = append(errs, fmt.Errorf("--rendezvous-max-backoff: must not be less than --rendezvous-backoff, which is %s, is %s", r.Backoff, r.MaxBackoff))
	}
	if r != podgroup.DefaultRendezvousPolicy() && !run {
		errs = append(errs, fmt.Errorf("--rendezvous-timeout, --rendezvous-limit, --rendezvous-backoff, --rendezvous-max-backoff: have no meaning without %s in --controllers", podGroupName))
	}
	return errs
}
