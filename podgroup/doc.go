// Package podgroup says what a gang is: which pods are members of a PodGroup, in which order, what each of
// them counts for, and what that makes of the PodGroup's status. Everything here is a function of objects
// that the caller already has; only the informers in informers.go talk to an API server.
//
// What counts as a member, and why, is written down in docs/decisions/0002-what-counts-as-a-member.md.
package podgroup
