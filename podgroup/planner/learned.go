package planner

import "fmt"

// learned holds what verification taught about each class.
type learned struct {
	byClass [][]Limit
	// nowhere holds, for a class that no node takes at all, the cause; "" for the others.
	nowhere []string
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

// cause returns why a node that arithmetic would let a class use takes none of its members.
func (l *learned) cause(class int, node NodeID) string {
	for _, limit := range l.byClass[class] {
		if limit.Node == node && limit.Max == 0 {
			return limit.Cause
		}
	}
	return l.nowhere[class]
}

// partly returns why a node takes only as many members of a class as it does, if that was learned.
func (l *learned) partly(class int, node NodeID, slots int64) string {
	for _, limit := range l.byClass[class] {
		if limit.Node == node && int64(limit.Max) == slots {
			return fmt.Sprintf("with room for only %d: %s", limit.Max, limit.Cause)
		}
	}
	return ""
}
