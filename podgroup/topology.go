package podgroup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations that ask where a gang goes. On a PodGroup they are about the whole gang, on a pod about its
// set: see Arrange. Levels are named by the node label that tells their domains apart.
const (
	// RequiredTopologyAnnotation is the level one domain of which must hold all of the pods.
	RequiredTopologyAnnotation = "muster.dev/required-topology"

	// PreferredTopologyAnnotation is the level down to which the pods should be kept together.
	PreferredTopologyAnnotation = "muster.dev/preferred-topology"

	// SliceRequiredTopologyAnnotation is the level one domain of which must hold each slice.
	SliceRequiredTopologyAnnotation = "muster.dev/slice-required-topology"

	// SliceSizeAnnotation is how many consecutive ranks make a slice.
	SliceSizeAnnotation = "muster.dev/slice-size"
)

// Annotations of Kueue (v0.17) with the same meaning.
const (
	kueueRequired      = "kueue.x-k8s.io/podset-required-topology"
	kueuePreferred     = "kueue.x-k8s.io/podset-preferred-topology"
	kueueUnconstrained = "kueue.x-k8s.io/podset-unconstrained-topology"
	kueueSliceLevel    = "kueue.x-k8s.io/podset-slice-required-topology"
	kueueSliceSize     = "kueue.x-k8s.io/podset-slice-size"
	kueueSliceLayers   = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
	kueueGroup         = "kueue.x-k8s.io/podset-group-name"
	kueuePodIndexLabel = "kueue.x-k8s.io/pod-group-pod-index"
)

// podGroupDescription is who carries the annotations of the whole gang.
const podGroupDescription = "the PodGroup"

// topologyAnnotations are all annotations that ParseTopology reads.
var topologyAnnotations = []string{
	RequiredTopologyAnnotation, PreferredTopologyAnnotation, SliceRequiredTopologyAnnotation, SliceSizeAnnotation,
	kueueRequired, kueuePreferred, kueueUnconstrained, kueueSliceLevel, kueueSliceSize, kueueSliceLayers, kueueGroup,
}

// Topology is what the annotations of one object ask for. It is comparable; the zero Topology asks for nothing.
type Topology struct {
	// Required and Preferred are levels for all of the pods, SliceLevel one for each slice of them.
	Required, Preferred, SliceLevel Asked

	// SliceSize is how many consecutive ranks make a slice, 0 if there are no slices.
	SliceSize int

	// sizeFrom is the annotation that SliceSize comes from.
	sizeFrom string

	// group is the name under which pods of different templates form one set.
	group string
}

// Asked is a topology level that an annotation asks for. The zero Asked is none.
type Asked struct {
	// Label is the node label that names the level.
	Label string

	// Annotation is where it is asked for.
	Annotation string
}

// TopologyError says what is wrong with an annotation that asks for a topology.
type TopologyError struct {
	// Annotation is the key of the annotation.
	Annotation string

	// Of names the object that carries it, as in: pod "worker-3". Empty if the caller knows.
	Of string

	// Problem starts with the annotation's value.
	Problem string
}

// Error names the annotation, the object and the problem.
func (e *TopologyError) Error() string {
	if e.Of == "" {
		return fmt.Sprintf("annotation %s: %s", e.Annotation, e.Problem)
	}
	return fmt.Sprintf("annotation %s of %s: %s", e.Annotation, e.Of, e.Problem)
}

// shownLength is how much of an annotation's value an error shows, in bytes: it is told on every member, and
// an annotation can be longer than a condition may be.
const shownLength = 256

func wrong(annotation, format string, args ...any) *TopologyError {
	for i, arg := range args {
		if value, ok := arg.(string); ok && len(value) > shownLength {
			args[i] = strings.ToValidUTF8(value[:shownLength], "") + "..."
		}
	}
	return &TopologyError{Annotation: annotation, Problem: fmt.Sprintf(format, args...)}
}

// SameTopology reports whether two objects' annotations ask for the same in the same words.
func SameTopology(a, b map[string]string) bool {
	return maps.Equal(keep(a, topologyAnnotations), keep(b, topologyAnnotations))
}

// ParseTopology reads what annotations ask for. What it returns is consistent in itself; whether the levels exist
// and lie inside each other is for who knows the levels to check. The error, if any, is a *TopologyError.
func ParseTopology(annotations map[string]string) (Topology, error) {
	t := Topology{group: annotations[kueueGroup]}
	for _, level := range []struct {
		to          *Asked
		ours, kueue string
	}{
		{&t.Required, RequiredTopologyAnnotation, kueueRequired},
		{&t.Preferred, PreferredTopologyAnnotation, kueuePreferred},
		{&t.SliceLevel, SliceRequiredTopologyAnnotation, kueueSliceLevel},
	} {
		key, value, err := oneOf(annotations, level.ours, level.kueue)
		if err != nil {
			return Topology{}, err
		}
		if key == "" {
			continue
		}
		if msgs := validation.IsQualifiedName(value); len(msgs) > 0 {
			return Topology{}, wrong(key, "%q is not a node label: %s", value, strings.Join(msgs, "; "))
		}
		*level.to = Asked{Label: value, Annotation: key}
	}
	if err := t.parseSliceSize(annotations); err != nil {
		return Topology{}, err
	}
	if err := t.parseSliceLayers(annotations); err != nil {
		return Topology{}, err
	}
	if err := t.consistent(annotations); err != nil {
		return Topology{}, err
	}
	return t, nil
}

// oneOf returns the annotation of two with the same meaning that is set, and its value; "" if neither is.
func oneOf(annotations map[string]string, ours, kueue string) (key, value string, err error) {
	a, isOurs := annotations[ours]
	b, isKueue := annotations[kueue]
	switch {
	case isOurs && isKueue && a != b:
		return "", "", wrong(ours, "%q contradicts annotation %s, which says %q", a, kueue, b)
	case isOurs:
		return ours, a, nil
	case isKueue:
		return kueue, b, nil
	}
	return "", "", nil
}

func (t *Topology) parseSliceSize(annotations map[string]string) error {
	key, value, err := oneOf(annotations, SliceSizeAnnotation, kueueSliceSize)
	if err != nil || key == "" {
		return err
	}
	size, ok := parseIndex(value)
	if !ok || size == 0 {
		return wrong(key, "%q is not a positive number", value)
	}
	t.SliceSize, t.sizeFrom = size, key
	return nil
}

// parseSliceLayers reads Kueue's list of slice levels, each for slices of the one before. One level is a slice as
// any other; there are none for slices inside slices.
func (t *Topology) parseSliceLayers(annotations map[string]string) error {
	value, ok := annotations[kueueSliceLayers]
	if !ok {
		return nil
	}
	var layers []struct {
		Topology string `json:"topology"`
		Size     int    `json:"size"`
	}
	if err := json.Unmarshal([]byte(value), &layers); err != nil {
		return wrong(kueueSliceLayers, "%q is not a JSON list of levels with topology and size", value)
	}
	if other := cmp.Or(t.SliceLevel.Annotation, t.sizeFrom); other != "" {
		return wrong(kueueSliceLayers, "%q and annotation %s both ask for slices", value, other)
	}
	if len(layers) != 1 {
		return wrong(kueueSliceLayers, "%q has %d levels; slices inside slices are not supported, so it must have one", value, len(layers))
	}
	if msgs := validation.IsQualifiedName(layers[0].Topology); len(msgs) > 0 {
		return wrong(kueueSliceLayers, "topology %q is not a node label: %s", layers[0].Topology, strings.Join(msgs, "; "))
	}
	if layers[0].Size < 1 {
		return wrong(kueueSliceLayers, "size %d is not a positive number", layers[0].Size)
	}
	t.SliceLevel = Asked{Label: layers[0].Topology, Annotation: kueueSliceLayers}
	t.SliceSize, t.sizeFrom = layers[0].Size, kueueSliceLayers
	return nil
}

// consistent says what in the annotations excludes each other.
func (t *Topology) consistent(annotations map[string]string) error {
	if value, ok := annotations[kueueUnconstrained]; ok {
		unconstrained, err := strconv.ParseBool(value)
		if err != nil {
			return wrong(kueueUnconstrained, "%q is neither true nor false", value)
		}
		if other := cmp.Or(t.Required.Annotation, t.Preferred.Annotation); unconstrained && other != "" {
			return wrong(kueueUnconstrained, "%q contradicts annotation %s", value, other)
		}
	}
	switch {
	case t.Required.Label != "" && t.Required.Label == t.Preferred.Label:
		return wrong(t.Preferred.Annotation, "%q is also the level of annotation %s; it must be one inside that",
			t.Preferred.Label, t.Required.Annotation)
	case t.SliceLevel.Label != "" && t.SliceSize == 0:
		return wrong(t.SliceLevel.Annotation, "%q needs annotation %s too", t.SliceLevel.Label, SliceSizeAnnotation)
	case t.SliceLevel.Label == "" && t.SliceSize != 0:
		return wrong(t.sizeFrom, "\"%d\" needs annotation %s too", t.SliceSize, SliceRequiredTopologyAnnotation)
	}
	if name, ok := annotations[kueueGroup]; ok {
		switch {
		case name == "":
			return wrong(kueueGroup, `"" is no name`)
		case t.SliceSize > 0:
			return wrong(kueueGroup, "%q excludes slices, which annotation %s asks for", name, t.sizeFrom)
		case t.Required.Label == "" && t.Preferred.Label == "":
			return wrong(kueueGroup, "%q needs annotation %s or %s too", name, RequiredTopologyAnnotation, PreferredTopologyAnnotation)
		}
	}
	return nil
}

// sliceError returns an error about the number of members in a slice.
func (t *Topology) sliceError(format string, args ...any) *TopologyError {
	return wrong(t.sizeFrom, "\"%d\" "+format, slices.Insert(args, 0, any(t.SliceSize))...)
}

// sameLevels reports whether two ask for the same, in whichever dialect.
func (t Topology) sameLevels(other Topology) bool {
	return t.Required.Label == other.Required.Label && t.Preferred.Label == other.Preferred.Label &&
		t.SliceLevel.Label == other.SliceLevel.Label && t.SliceSize == other.SliceSize
}
