package simulation

import (
	"flag"
	"testing"

	"pgregory.net/rapid"
)

// Whatever happens, in whatever order: the invariants of the design hold after every step.
func TestInvariantsHold(t *testing.T) {
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		defer m.c.Close()
		t.Repeat(rapid.StateMachineActions(m))
		steps += m.steps
	})
	t.Logf("%d steps", steps)
}

var _ = flag.Set
