// Package preemption decides which running pods make room for a gang of higher priority, and evicts them. What
// is evicted is a unit: a gang down to nothing, a member that its gang can do without, or a pod without a gang.
// A gang is never left with fewer members than it needs.
package preemption
