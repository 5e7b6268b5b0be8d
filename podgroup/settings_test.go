package podgroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func TestParseSettings(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name        string
		annotations map[string]string
		want        func(*Settings)
		err         string
	}{
		{name: "no annotations"},
		{
			name:        "rendezvous timeout",
			annotations: map[string]string{RendezvousTimeoutAnnotation: "10m"},
			want:        func(s *Settings) { s.RendezvousTimeout = ptr.To(10 * time.Minute) },
		},
		{
			name:        "no rendezvous timeout",
			annotations: map[string]string{RendezvousTimeoutAnnotation: "0"},
			want:        func(s *Settings) { s.RendezvousTimeout = ptr.To(time.Duration(0)) },
		},
		{
			name:        "rendezvous timeout without a unit",
			annotations: map[string]string{RendezvousTimeoutAnnotation: "600"},
			err:         `annotation muster.dev/rendezvous-timeout: "600" is not a duration such as "90s", "10m" or "2h30m"`,
		},
		{
			name:        "negative",
			annotations: map[string]string{RunTimeAnnotation: "-1h"},
			err:         `annotation muster.dev/run-time: "-1h" must not be negative`,
		},
		{
			name:        "longer than a year",
			annotations: map[string]string{ProvisioningWindowAnnotation: "8761h"},
			err:         `annotation muster.dev/provisioning-window: "8761h" is more than a year (8760h)`,
		},
		{
			name:        "run time and window",
			annotations: map[string]string{RunTimeAnnotation: "2h30m", ProvisioningWindowAnnotation: "5m"},
			want: func(s *Settings) {
				s.RunTime, s.ProvisioningWindow = 150*time.Minute, ptr.To(5*time.Minute)
			},
		},
		{
			name:        "times",
			annotations: map[string]string{NotBeforeAnnotation: "2026-03-01T12:00:00Z", LastCheckpointTimeAnnotation: "2026-03-01T12:00:00Z"},
			want:        func(s *Settings) { s.NotBefore, s.LastCheckpoint = noon, noon },
		},
		{
			name: "the controller's record",
			annotations: map[string]string{
				RendezvousAttemptsAnnotation: "2", ReleasedAtAnnotation: "2026-03-01T12:00:00Z", NotBeforeAnnotation: "2026-03-01T12:00:00Z",
				GivenUpAnnotation: "true", AdmittedAtAnnotation: "2026-03-01T12:00:00Z",
			},
			want: func(s *Settings) {
				s.NotBefore = noon
				s.Record = Record{Attempts: 2, ReleasedAt: noon, NotBefore: noon, GivenUp: true, AdmittedAt: noon}
			},
		},
		{
			name:        "fewer than no attempts",
			annotations: map[string]string{RendezvousAttemptsAnnotation: "-1"},
			err:         `annotation muster.dev/rendezvous-attempts: "-1" is not a number of 0 or more`,
		},
		{
			name:        "given up a little",
			annotations: map[string]string{GivenUpAnnotation: "yes"},
			err:         `annotation muster.dev/given-up: "yes" must be "true" or "false"`,
		},
		{
			name:        "a date is no time",
			annotations: map[string]string{NotBeforeAnnotation: "2026-03-01"},
			err:         `annotation muster.dev/not-before: "2026-03-01" is not a time such as "2026-03-01T12:00:00Z" (RFC 3339)`,
		},
		{
			name:        "not preemptible",
			annotations: map[string]string{PreemptibleAnnotation: "false"},
			want:        func(s *Settings) { s.Preemptible = false },
		},
		{
			name:        "preemptible in other words",
			annotations: map[string]string{PreemptibleAnnotation: "no"},
			err:         `annotation muster.dev/preemptible: "no" must be "true" or "false"`,
		},
		{
			name:        "once satisfied",
			annotations: map[string]string{MatchPolicyAnnotation: "once-satisfied"},
			want:        func(s *Settings) { s.MatchPolicy = OnceSatisfied },
		},
		{
			name:        "unknown policy",
			annotations: map[string]string{MatchPolicyAnnotation: "only-waiting"},
			err:         `annotation muster.dev/match-policy: "only-waiting" must be "waiting-and-running" or "once-satisfied"`,
		},
		{
			name:        "the first problem is told, the rest is read",
			annotations: map[string]string{MatchPolicyAnnotation: "", RunTimeAnnotation: "x", PreemptibleAnnotation: "false"},
			want:        func(s *Settings) { s.Preemptible = false },
			err:         `annotation muster.dev/match-policy: "" must be "waiting-and-running" or "once-satisfied"`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := Settings{MatchPolicy: WaitingAndRunning, Preemptible: true}
			if test.want != nil {
				test.want(&want)
			}
			got, err := ParseSettings(test.annotations)
			if text := errorText(err); text != test.err {
				t.Errorf("error is %q, want %q", text, test.err)
			}
			if !sameSettings(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func sameSettings(a, b Settings) bool {
	same := ptr.Equal(a.RendezvousTimeout, b.RendezvousTimeout) && ptr.Equal(a.ProvisioningWindow, b.ProvisioningWindow)
	a.RendezvousTimeout, a.ProvisioningWindow, b.RendezvousTimeout, b.ProvisioningWindow = nil, nil, nil, nil
	return same && a == b
}

// Whatever an annotation holds, the settings are usable and an error names the annotation in few words.
func TestParseSettingsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		annotations := map[string]string{}
		for _, key := range settingsAnnotations {
			if rapid.Bool().Draw(t, "has "+key) {
				annotations[key] = rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,20}(ns|s|m|h)`),
					rapid.SampledFrom([]string{"true", "false", "once-satisfied", "2026-03-01T12:00:00Z", strings.Repeat("x", 100_000)})).Draw(t, key)
			}
		}
		s, err := ParseSettings(annotations)
		for what, d := range map[string]time.Duration{
			"rendezvous timeout": ptr.Deref(s.RendezvousTimeout, 0), "run time": s.RunTime, "window": ptr.Deref(s.ProvisioningWindow, 0),
		} {
			if d < 0 || d > maxDuration {
				t.Errorf("%s is %v", what, d)
			}
		}
		if s.MatchPolicy != WaitingAndRunning && s.MatchPolicy != OnceSatisfied {
			t.Errorf("match policy is %q", s.MatchPolicy)
		}
		if err == nil {
			return
		}
		problem := (*SettingsError)(nil)
		if !errors.As(err, &problem) {
			t.Fatalf("error is a %T", err)
		}
		if _, carried := annotations[problem.Annotation]; !carried {
			t.Errorf("the error is about %s, which is not there", problem.Annotation)
		}
		if len(err.Error()) > 2000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

func TestSameSettings(t *testing.T) {
	a := map[string]string{RunTimeAnnotation: "1h", "other": "x"}
	for _, test := range []struct {
		b    map[string]string
		want bool
	}{
		{map[string]string{RunTimeAnnotation: "1h"}, true},
		{map[string]string{RunTimeAnnotation: "60m"}, false},
		{map[string]string{RunTimeAnnotation: "1h", MatchPolicyAnnotation: ""}, false},
		{nil, false},
	} {
		if got := SameSettings(a, test.b); got != test.want {
			t.Errorf("SameSettings(%v, %v) is %v", a, test.b, got)
		}
	}
}
