package planner

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// cut shortens a text to at most limit bytes, at the end of a character.
func cut(s string, limit int) string {
	const mark = " ..."
	if len(s) <= limit {
		return s
	}
	if limit < len(mark) {
		return mark[:max(limit, 0)]
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// list joins names as a sentence does: "a, b and c".
func list(names []string, and string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " " + and + " " + names[last]
}

// level names a level by what its domains are, with its label where that says more.
func level(label string) string {
	if n := noun(label); n != label {
		return n + " (" + label + ")"
	}
	return label
}

// noun is what people call a domain of the level with this label: the last word of the label, such as
// rack for example.com/rack, block for cloud.google.com/gce-topology-block, and clique for
// nvidia.com/gpu.clique. A label that ends in a number, or an id, keeps its whole name.
func noun(label string) string {
	name := label[strings.LastIndexByte(label, '/')+1:]
	if label == corev1.LabelHostname {
		return "node"
	}
	last := name[strings.LastIndexAny(name, ".-_")+1:]
	if last == "" || last == "id" || isDigit(last[0]) {
		return name
	}
	return last
}

func sep(i int, first, next string) string {
	if i == 0 {
		return first
	}
	return next
}

func plural(n int) string { return verb(n, "", "s") }

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func counted(n int, noun string) string { return strconv.Itoa(n) + " " + noun + plural(n) }

// about is an amount that changes with every pod, in words that do not: rounded down to two digits
// where the resource is measured and not counted.
func about(name string, value int64) string {
	if !measured(name) || value == math.MaxInt64 {
		return FormatAmount(name, value)
	}
	unit := int64(1)
	if name != "cpu" {
		for unit <= math.MaxInt64>>14 && value/unit >= 10<<10 {
			unit <<= 10
		}
	}
	n, scale := value/unit, int64(1)
	for n/scale >= 100 {
		scale *= 10
	}
	return FormatAmount(name, n/scale*scale*unit)
}

// measured reports whether a resource comes in amounts and not in pieces.
func measured(name string) bool {
	switch name {
	case "cpu", "memory", "ephemeral-storage":
		return true
	}
	return false
}

// FormatAmount writes an amount in the scheduler's units as a Kubernetes quantity.
func FormatAmount(name string, value int64) string {
	switch {
	case name == "cpu":
		return resource.NewMilliQuantity(value, resource.DecimalSI).String()
	case name == "memory", name == "ephemeral-storage", strings.HasPrefix(name, "hugepages-"):
		return resource.NewQuantity(value, resource.BinarySI).String()
	}
	return strconv.FormatInt(value, 10)
}
