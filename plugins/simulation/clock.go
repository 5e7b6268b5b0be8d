package simulation

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is a clock that stands still until it is set. What is to happen later waits for Ring, one thing at a
// time, in the order of its time and, for the same time, in the order in which it was asked for.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms alarms
	asked  int
}

var _ clock.WithTickerAndDelayedExecution = &Clock{}

// alarm is a call at a time.
type alarm struct {
	clock *Clock
	at    time.Time
	order int
	ring  func()
	place int // in the heap, -1 outside
	c     chan time.Time
}

// NewClock returns a clock that shows the given time.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// AfterFunc implements clock.WithDelayedExecution.
func (c *Clock) AfterFunc(d time.Duration, ring func()) clock.Timer {
	a := &alarm{clock: c, ring: ring, place: -1}
	a.Reset(d)
	return a
}

// NewTimer implements clock.Clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	a := &alarm{clock: c, place: -1, c: make(chan time.Time, 1)}
	a.ring = func() {
		select {
		case a.c <- c.Now():
		default:
		}
	}
	a.Reset(d)
	return a
}

// After implements clock.Clock.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// Tick implements clock.Clock.
func (c *Clock) Tick(d time.Duration) <-chan time.Time { return c.NewTicker(d).C() }

// Sleep implements clock.Clock. Nobody could turn the clock meanwhile.
func (c *Clock) Sleep(time.Duration) { panic("simulation: nobody sleeps on a clock that stands still") }

// NewTicker implements clock.WithTicker.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker {
	t := &ticker{c: make(chan time.Time, 1)}
	t.alarm = c.AfterFunc(d, func() {
		select {
		case t.c <- c.Now():
		default:
		}
		t.alarm.Reset(d)
	})
	return t
}

type ticker struct {
	alarm clock.Timer
	c     chan time.Time
}

func (t *ticker) C() <-chan time.Time { return t.c }
func (t *ticker) Stop()               { t.alarm.Stop() }

// next returns the time of the next alarm.
func (c *Clock) next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.alarms) == 0 {
		return time.Time{}, false
	}
	return c.alarms[0].at, true
}

// due reports whether an alarm is to ring now.
func (c *Clock) due() bool {
	at, ok := c.next()
	return ok && !at.After(c.Now())
}

// set turns the clock forward.
func (c *Clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.now) {
		panic("simulation: time runs backwards")
	}
	c.now = now
}

// ring rings the first alarm that is due.
func (c *Clock) ring() {
	c.mu.Lock()
	if len(c.alarms) == 0 || c.alarms[0].at.After(c.now) {
		c.mu.Unlock()
		return
	}
	a := heap.Pop(&c.alarms).(*alarm)
	c.mu.Unlock()
	a.ring()
}

// C implements clock.Timer; it is nil for a function.
func (a *alarm) C() <-chan time.Time { return a.c }

// Stop implements clock.Timer.
func (a *alarm) Stop() bool {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	if a.place < 0 {
		return false
	}
	heap.Remove(&a.clock.alarms, a.place)
	return true
}

// Reset implements clock.Timer.
func (a *alarm) Reset(d time.Duration) bool {
	active := a.Stop()
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	a.clock.asked++
	a.at, a.order = a.clock.now.Add(max(d, 0)), a.clock.asked
	heap.Push(&a.clock.alarms, a)
	return active
}

// alarms is a heap.
type alarms []*alarm

func (h alarms) Len() int { return len(h) }
func (h alarms) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	a.place = len(*h)
	*h = append(*h, a)
}
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = -1
	return a
}

// lifetime is the clock of a process: what the process asked for does not happen once it is dead.
type lifetime struct {
	*Clock
	dead *bool
}

func (l lifetime) AfterFunc(d time.Duration, ring func()) clock.Timer {
	return l.Clock.AfterFunc(d, func() {
		if !*l.dead {
			ring()
		}
	})
}
