package planner

import "slices"

// learned holds what verification taught about each class.
type learned struct {
	byClass [][]Limit
	// nowhere holds, for a class that no node takes at all, the cause; "" for the others.
	nowhere []string
}

func newLearned(classes int) *learned {
	l := &learned{}
	l.reset(classes)
	return l
}

// reset forgets everything and makes room for a number of classes.
func (l *learned) reset(classes int) {
	l.byClass, l.nowhere = resize(l.byClass, classes), resize(l.nowhere, classes)
	for class := range classes {
		l.byClass[class], l.nowhere[class] = l.byClass[class][:0], ""
	}
}

func (l *learned) add(limits []Limit) {
	for _, limit := range limits {
		if limit.Node == NoNode {
			l.nowhere[limit.Class] = limit.Cause
			continue
		}
		l.byClass[limit.Class] = append(l.byClass[limit.Class], limit)
	}
}

func (l *learned) empty() bool {
	for class := range l.byClass {
		if len(l.byClass[class]) > 0 || l.nowhere[class] != "" {
			return false
		}
	}
	return true
}

// clone returns a copy that stays as it is, or nil if nothing was learned.
func (l *learned) clone() *learned {
	if l.empty() {
		return nil
	}
	out := &learned{byClass: slices.Clone(l.byClass), nowhere: slices.Clone(l.nowhere)}
	for class := range out.byClass {
		out.byClass[class] = slices.Clone(out.byClass[class])
	}
	return out
}
