package apply

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefused(t *testing.T) {
	jobSets := schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}
	webhook := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: `admission webhook "vjobset.kb.io" denied the request: no`}}
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                    {nil, false},
		"the schema":                 {apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "llm", nil), true},
		"the schema, wrapped":        {fmt.Errorf("JobSet: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "llm", nil)), true},
		"a webhook":                  {webhook(403), true},
		"a webhook, as bad request":  {webhook(400), true},
		"a webhook, wrapped":         {fmt.Errorf("JobSet: %w", webhook(422)), true},
		"a webhook with a conflict":  {webhook(409), false},
		"a webhook with a limit":     {webhook(429), false},
		"a webhook that is broken":   {webhook(500), false},
		"no rights":                  {apierrors.NewForbidden(jobSets, "llm", errors.New("may not")), false},
		"a namespace that goes":      {apierrors.NewForbidden(jobSets, "llm", errors.New("unable to create new content in namespace x because it is being terminated")), false},
		"not found":                  {apierrors.NewNotFound(jobSets, "llm"), false},
		"an error that only says so": {errors.New("somebody denied the request"), false},
	} {
		if got := Refused(tc.err); got != tc.want {
			t.Errorf("%s: refused = %v, want %v", name, got, tc.want)
		}
	}
}
