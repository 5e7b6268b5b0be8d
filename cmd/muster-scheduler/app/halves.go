package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
)

// half is one of the parts that live and die together.
type half struct {
	name string

	// run works until ctx is done and then returns nil. Anything else is a failure, also a nil
	// before that.
	run func(ctx context.Context) error

	// endsProcess says that run, once its context is done, ends the process with exit code 0.
	endsProcess bool
}

var errEnded = errors.New("ended without being asked to")

// runHalves runs all halves until ctx is done or one of them ends. Then it stops the others one
// after the other, in the order given, and waits for each; so a half that ends the process comes
// last. It returns what went wrong, if anything did.
//
// After a failure a half that would end the process, and with the wrong exit code, is not stopped:
// the caller gets the error while it still runs, and must end the process itself.
func runHalves(ctx context.Context, halves []half) error {
	logger := klog.FromContext(ctx)
	type running struct {
		half
		cancel context.CancelFunc // not deferred: see endsProcess
		done   chan struct{}
		err    error
	}
	ended := make(chan *running, len(halves))
	all := make([]*running, 0, len(halves))
	for _, h := range halves {
		halfCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{half: h, cancel: cancel, done: make(chan struct{})}
		all = append(all, r)
		go func() {
			r.err = h.run(halfCtx)
			if r.err == nil && halfCtx.Err() == nil {
				r.err = errEnded
			}
			close(r.done)
			ended <- r
		}()
	}

	var failure error
	select {
	case <-ctx.Done():
		logger.Info("Shutting down", "reason", context.Cause(ctx))
	case r := <-ended:
		failure = fmt.Errorf("%s: %w", r.name, r.err)
		logger.Error(r.err, "Shutting down because one half ended", "half", r.name)
	}
	for _, r := range all {
		if failure != nil && r.endsProcess {
			continue
		}
		r.cancel()
		<-r.done
		if failure == nil && r.err != nil {
			failure = fmt.Errorf("%s: %w", r.name, r.err)
		}
	}
	return failure
}
