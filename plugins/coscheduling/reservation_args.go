package coscheduling

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ReservationArgs say when room is reserved for a gang that waits.
type ReservationArgs struct {
	// AfterSeconds is how long a gang must have been complete, and refused for want of room, before room is reserved
	// for it, in seconds: up to 31,536,000 (a year). 0, the default, reserves nothing.
	AfterSeconds *int64 `json:"afterSeconds,omitempty"`

	// MaxSeconds is how long room is reserved for one gang at most, in seconds: from 1 to 31,536,000; 14,400 (four
	// hours) by default. Then the next gang that waits has its turn. It should be as long as what runs in the cluster
	// usually runs.
	MaxSeconds *int64 `json:"maxSeconds,omitempty"`
}

const (
	defaultMaxReservation = 4 * time.Hour
	// maxReservationSeconds is a year.
	maxReservationSeconds = 365 * 24 * 60 * 60
)

func (a *ReservationArgs) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a == nil {
		return nil
	}
	if s := a.AfterSeconds; s != nil && (*s < 0 || *s > maxReservationSeconds) {
		errs = append(errs, field.Invalid(path.Child("afterSeconds"), *s, fmt.Sprintf("must be from 0 to %d", maxReservationSeconds)))
	}
	if s := a.MaxSeconds; s != nil && (*s < 1 || *s > maxReservationSeconds) {
		errs = append(errs, field.Invalid(path.Child("maxSeconds"), *s, fmt.Sprintf("must be from 1 to %d", maxReservationSeconds)))
	}
	return errs
}

// after is how long a gang waits before room is reserved for it; 0 if none ever is.
func (a *ReservationArgs) after() time.Duration {
	if a == nil || a.AfterSeconds == nil {
		return 0
	}
	return time.Duration(*a.AfterSeconds) * time.Second
}

// longest is how long room is reserved for a gang at most.
func (a *ReservationArgs) longest() time.Duration {
	if a == nil || a.MaxSeconds == nil {
		return defaultMaxReservation
	}
	return time.Duration(*a.MaxSeconds) * time.Second
}
