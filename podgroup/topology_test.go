package podgroup

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParseTopologyReadsBothDialects(t *testing.T) {
	const rack = "example.com/rack"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        Topology
	}{
		"nothing":            {nil, Topology{}},
		"other annotations":  {map[string]string{"note": "x"}, Topology{}},
		"required":           {map[string]string{RequiredTopologyAnnotation: rack}, Topology{Required: Asked{rack, RequiredTopologyAnnotation}}},
		"preferred":          {map[string]string{PreferredTopologyAnnotation: rack}, Topology{Preferred: Asked{rack, PreferredTopologyAnnotation}}},
		"required by Kueue":  {map[string]string{kueueRequired: rack}, Topology{Required: Asked{rack, kueueRequired}}},
		"preferred by Kueue": {map[string]string{kueuePreferred: rack}, Topology{Preferred: Asked{rack, kueuePreferred}}},
		"a level without a prefix": {map[string]string{RequiredTopologyAnnotation: "rack"},
			Topology{Required: Asked{"rack", RequiredTopologyAnnotation}}},
		"both dialects agree": {map[string]string{RequiredTopologyAnnotation: rack, kueueRequired: rack},
			Topology{Required: Asked{rack, RequiredTopologyAnnotation}}},
		"slices": {map[string]string{SliceRequiredTopologyAnnotation: rack, SliceSizeAnnotation: "4"},
			Topology{SliceLevel: Asked{rack, SliceRequiredTopologyAnnotation}, SliceSize: 4, sizeFrom: SliceSizeAnnotation}},
		"slices, half in each dialect": {map[string]string{kueueSliceLevel: rack, SliceSizeAnnotation: "4"},
			Topology{SliceLevel: Asked{rack, kueueSliceLevel}, SliceSize: 4, sizeFrom: SliceSizeAnnotation}},
		"one layer of slices": {map[string]string{kueueSliceLayers: `[{"topology":"example.com/rack","size":4}]`},
			Topology{SliceLevel: Asked{rack, kueueSliceLayers}, SliceSize: 4, sizeFrom: kueueSliceLayers}},
		"unconstrained":               {map[string]string{kueueUnconstrained: "true"}, Topology{}},
		"not unconstrained":           {map[string]string{kueueUnconstrained: "false", kueueRequired: rack}, Topology{Required: Asked{rack, kueueRequired}}},
		"a podset group":              {map[string]string{kueueGroup: "g", kueueRequired: rack}, Topology{Required: Asked{rack, kueueRequired}, group: "g"}},
		"a podset group of our level": {map[string]string{kueueGroup: "g", PreferredTopologyAnnotation: rack}, Topology{Preferred: Asked{rack, PreferredTopologyAnnotation}, group: "g"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTopology(test.annotations)
			if err != nil || got != test.want {
				t.Errorf("%+v, error %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestParseTopologyNamesWhatIsWrong(t *testing.T) {
	const rack, zone = "example.com/rack", "topology.kubernetes.io/zone"
	for name, test := range map[string]struct {
		annotations map[string]string
		key         string
		words       []string
	}{
		"an empty level":     {map[string]string{RequiredTopologyAnnotation: ""}, RequiredTopologyAnnotation, []string{`"" is not a node label`}},
		"no label":           {map[string]string{kueuePreferred: "a b"}, kueuePreferred, []string{`"a b" is not a node label`}},
		"no label of slices": {map[string]string{SliceRequiredTopologyAnnotation: "/", SliceSizeAnnotation: "2"}, SliceRequiredTopologyAnnotation, []string{`"/"`}},
		"dialects that contradict each other": {map[string]string{PreferredTopologyAnnotation: rack, kueuePreferred: zone},
			PreferredTopologyAnnotation, []string{rack, "contradicts", kueuePreferred, zone}},
		"sizes that contradict each other": {map[string]string{SliceRequiredTopologyAnnotation: rack, SliceSizeAnnotation: "2", kueueSliceSize: "4"},
			SliceSizeAnnotation, []string{`"2"`, kueueSliceSize, `"4"`}},
		"required and preferred the same": {map[string]string{RequiredTopologyAnnotation: rack, kueuePreferred: rack},
			kueuePreferred, []string{rack, "also the level", RequiredTopologyAnnotation}},
		"a size of 0":          {map[string]string{SliceRequiredTopologyAnnotation: rack, SliceSizeAnnotation: "0"}, SliceSizeAnnotation, []string{`"0" is not a positive number`}},
		"a negative size":      {map[string]string{kueueSliceLevel: rack, kueueSliceSize: "-2"}, kueueSliceSize, []string{`"-2" is not a positive number`}},
		"a size with a sign":   {map[string]string{kueueSliceLevel: rack, kueueSliceSize: "+2"}, kueueSliceSize, []string{`"+2"`}},
		"a size beyond reason": {map[string]string{kueueSliceLevel: rack, kueueSliceSize: "99999999999999999999"}, kueueSliceSize, []string{"not a positive number"}},
		"no number":            {map[string]string{SliceRequiredTopologyAnnotation: rack, SliceSizeAnnotation: "four"}, SliceSizeAnnotation, []string{`"four"`}},
		"a size without level": {map[string]string{SliceSizeAnnotation: "2"}, SliceSizeAnnotation, []string{`"2" needs`, SliceRequiredTopologyAnnotation}},
		"a level without size": {map[string]string{kueueSliceLevel: rack}, kueueSliceLevel, []string{rack, "needs", SliceSizeAnnotation}},
		"slices inside slices": {map[string]string{kueueSliceLayers: `[{"topology":"a","size":4},{"topology":"b","size":2}]`},
			kueueSliceLayers, []string{"2 levels", "not supported"}},
		"no layers":                  {map[string]string{kueueSliceLayers: `[]`}, kueueSliceLayers, []string{"0 levels"}},
		"layers that are no JSON":    {map[string]string{kueueSliceLayers: `rack`}, kueueSliceLayers, []string{`"rack" is not a JSON list`}},
		"a layer without a size":     {map[string]string{kueueSliceLayers: `[{"topology":"a"}]`}, kueueSliceLayers, []string{"size 0"}},
		"a layer without a level":    {map[string]string{kueueSliceLayers: `[{"size":2}]`}, kueueSliceLayers, []string{`topology ""`}},
		"layers beside slices":       {map[string]string{kueueSliceLayers: `[{"topology":"a","size":4}]`, SliceSizeAnnotation: "4"}, kueueSliceLayers, []string{SliceSizeAnnotation, "both"}},
		"unconstrained and required": {map[string]string{kueueUnconstrained: "true", RequiredTopologyAnnotation: rack}, kueueUnconstrained, []string{`"true" contradicts`, RequiredTopologyAnnotation}},
		"perhaps unconstrained":      {map[string]string{kueueUnconstrained: "perhaps"}, kueueUnconstrained, []string{`"perhaps"`}},
		"a podset group of nothing":  {map[string]string{kueueGroup: "g"}, kueueGroup, []string{`"g" needs`, RequiredTopologyAnnotation}},
		"a podset group of no name":  {map[string]string{kueueGroup: "", kueueRequired: rack}, kueueGroup, []string{`"" is no name`}},
		"a podset group with slices": {map[string]string{kueueGroup: "g", kueueRequired: zone, kueueSliceLevel: rack, kueueSliceSize: "2"}, kueueGroup, []string{"excludes slices", kueueSliceSize}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTopology(test.annotations)
			var problem *TopologyError
			if !errors.As(err, &problem) || problem.Annotation != test.key {
				t.Fatalf("%+v, error %v, want one of annotation %s", got, err, test.key)
			}
			for _, word := range append(test.words, "annotation "+test.key) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not contain %q", err, word)
				}
			}
			if got != (Topology{}) {
				t.Errorf("beside the error there is %+v", got)
			}
		})
	}
}

// Whatever stands in the annotations, they are read or refused, and what was kept of them reads the same.
func TestParseTopologyOfAnything(t *testing.T) {
	values := []string{"", "rack", "example.com/rack", "0", "1", "4", "-1", "true", "false", "[]", `[{"topology":"rack","size":2}]`, "{", "a b"}
	rapid.Check(t, func(t *rapid.T) {
		annotations := rapid.MapOf(rapid.SampledFrom(append(topologyAnnotations, "note")),
			rapid.OneOf(rapid.SampledFrom(values), rapid.String())).Draw(t, "annotations")
		got, err := ParseTopology(annotations)
		if err != nil && !errors.As(err, new(*TopologyError)) {
			t.Fatalf("error %T", err)
		}
		kept := keep(annotations, topologyAnnotations)
		if again, errAgain := ParseTopology(kept); again != got || (err == nil) != (errAgain == nil) {
			t.Fatalf("kept annotations read as %+v, %v, want %+v, %v", again, errAgain, got, err)
		}
		if err == nil && (got.SliceSize > 0) != (got.SliceLevel.Label != "") {
			t.Fatalf("half a slice: %+v", got)
		}
		if !SameTopology(annotations, kept) {
			t.Fatal("kept annotations do not ask for the same")
		}
	})
}

func TestSameTopology(t *testing.T) {
	rack := map[string]string{RequiredTopologyAnnotation: "rack"}
	for _, test := range []struct {
		a, b map[string]string
		want bool
	}{
		{nil, nil, true},
		{nil, map[string]string{"note": "x"}, true},
		{rack, map[string]string{RequiredTopologyAnnotation: "rack", "note": "x"}, true},
		{rack, nil, false},
		{rack, map[string]string{RequiredTopologyAnnotation: "zone"}, false},
		{rack, map[string]string{kueueRequired: "rack"}, false},
	} {
		if SameTopology(test.a, test.b) != test.want || SameTopology(test.b, test.a) != test.want {
			t.Errorf("%v and %v: want %v", test.a, test.b, test.want)
		}
	}
}

// An annotation may be longer than a condition, or than what every member should be told.
func TestTopologyErrorsAreShort(t *testing.T) {
	for _, annotation := range topologyAnnotations {
		long := strings.Repeat("\u00e9", 100_000)
		_, err := ParseTopology(map[string]string{annotation: long})
		if err == nil || len(err.Error()) > 4096 || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: an error of %d bytes", annotation, len(fmt.Sprint(err)))
		}
	}
}
