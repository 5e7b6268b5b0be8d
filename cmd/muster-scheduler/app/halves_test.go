package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// testContext logs to the test, and ends what should have ended by itself.
func testContext(t *testing.T) context.Context {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func testLogger(t *testing.T) klog.Logger {
	logger, _ := ktesting.NewTestContext(t)
	return logger
}

// record notes, from several goroutines, what happened in which order.
type record struct {
	mu     sync.Mutex
	events []string
}

func (r *record) add(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *record) has(events ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Equal(r.events, events)
}

// untilStopped is a half that works until it is told to stop.
func untilStopped(name string, events *record, err error) half {
	return half{name: name, run: func(ctx context.Context) error {
		<-ctx.Done()
		events.add(name + " stopped")
		return err
	}}
}

func within(t *testing.T, run func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("runHalves does not return")
		return nil
	}
}

func TestHalvesStopInOrderWhenAsked(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(testContext(t))
		events := &record{}
		started := make(chan struct{}, 2)
		notify := func(h half) half {
			run := h.run
			h.run = func(ctx context.Context) error {
				started <- struct{}{}
				return run(ctx)
			}
			return h
		}
		err := within(t, func() error {
			go func() {
				<-started
				<-started
				cancel()
			}()
			return runHalves(ctx, []half{
				notify(untilStopped("controllers", events, nil)),
				notify(untilStopped("scheduler", events, nil)),
			})
		})
		if err != nil {
			t.Fatalf("asked to stop: want no error, got %v", err)
		}
		if !events.has("controllers stopped", "scheduler stopped") {
			t.Fatalf("want the controllers to stop before the scheduler, got %v", events.events)
		}
	}
}

func TestHalvesThatWereNeverAskedToRunStop(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	events := &record{}
	if err := within(t, func() error { return runHalves(ctx, []half{untilStopped("controllers", events, nil)}) }); err != nil {
		t.Errorf("want no error, got %v", err)
	}
}

func TestOneHalfEnds(t *testing.T) {
	boom := errors.New("boom")
	ends := func(name string, err error) half {
		return half{name: name, run: func(context.Context) error { return err }}
	}
	for _, test := range []struct {
		name   string
		halves func(events *record) []half
		cause  error
		want   string
		events []string
	}{
		{
			name: "the first fails",
			halves: func(events *record) []half {
				return []half{ends("controllers", boom), untilStopped("scheduler", events, nil)}
			},
			cause: boom, want: "controllers: boom", events: []string{"scheduler stopped"},
		},
		{
			name: "the second fails",
			halves: func(events *record) []half {
				return []half{untilStopped("controllers", events, nil), ends("scheduler", boom)}
			},
			cause: boom, want: "scheduler: boom", events: []string{"controllers stopped"},
		},
		{
			name: "one ends without an error",
			halves: func(events *record) []half {
				return []half{untilStopped("controllers", events, nil), ends("scheduler", nil)}
			},
			cause: errEnded, want: "scheduler: ended without being asked to", events: []string{"controllers stopped"},
		},
		{
			name: "the first cause is the one reported",
			halves: func(events *record) []half {
				return []half{ends("controllers", boom), untilStopped("scheduler", events, errors.New("consequence"))}
			},
			cause: boom, want: "controllers: boom", events: []string{"scheduler stopped"},
		},
		{
			name:   "a single half",
			halves: func(*record) []half { return []half{ends("controllers", boom)} },
			cause:  boom, want: "controllers: boom",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := &record{}
			err := within(t, func() error { return runHalves(testContext(t), test.halves(events)) })
			if !errors.Is(err, test.cause) || err.Error() != test.want {
				t.Errorf("want error %q, got %v", test.want, err)
			}
			if !events.has(test.events...) {
				t.Errorf("want %v, got %v", test.events, events.events)
			}
		})
	}
}

func TestFailureWhileStopping(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	events := &record{}
	err := within(t, func() error {
		return runHalves(ctx, []half{
			untilStopped("controllers", events, errors.New("grace period exceeded")),
			untilStopped("scheduler", events, nil),
		})
	})
	if err == nil || !strings.Contains(err.Error(), "controllers: grace period exceeded") {
		t.Errorf("want the failure of the controllers, got %v", err)
	}
	if !events.has("controllers stopped", "scheduler stopped") {
		t.Errorf("the scheduler must be stopped all the same, got %v", events.events)
	}
}

// A scheduler with leader election ends the process with exit code 0 as soon as it is stopped; after
// a failure that would tell the world that all is well.
func TestHalfThatEndsTheProcessIsNotStoppedAfterAFailure(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	var schedulerCtx context.Context
	started := make(chan struct{})
	err := within(t, func() error {
		return runHalves(testContext(t), []half{
			{name: "controllers", run: func(context.Context) error {
				<-started
				return errors.New("leader election lost")
			}},
			{name: "scheduler", endsProcess: true, run: func(ctx context.Context) error {
				schedulerCtx = ctx
				close(started)
				select {
				case <-ctx.Done():
				case <-release:
				}
				return nil
			}},
		})
	})
	if err == nil || !strings.Contains(err.Error(), "controllers: leader election lost") {
		t.Errorf("want the failure of the controllers, got %v", err)
	}
	if schedulerCtx.Err() != nil {
		t.Error("the scheduler was stopped, so the process would end with exit code 0")
	}
}

func TestHalfThatEndsTheProcessIsStoppedWhenAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	events := &record{}
	scheduler := untilStopped("scheduler", events, nil)
	scheduler.endsProcess = true
	if err := within(t, func() error {
		return runHalves(ctx, []half{untilStopped("controllers", events, nil), scheduler})
	}); err != nil {
		t.Errorf("want no error, got %v", err)
	}
	if !events.has("controllers stopped", "scheduler stopped") {
		t.Errorf("want both stopped, the controllers first, got %v", events.events)
	}
}
