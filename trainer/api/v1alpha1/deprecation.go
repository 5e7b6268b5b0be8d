package v1alpha1

import "fmt"

// DeprecationWarning returns what to tell the users of a runtime that is deprecated, and nothing about one
// that is not.
func DeprecationWarning(kind, name string, labels map[string]string) string {
	if labels[SupportLabel] != SupportDeprecated {
		return ""
	}
	return fmt.Sprintf("%s %q is deprecated and will be removed: it has the label %s=%s", kind, name, SupportLabel, SupportDeprecated)
}
