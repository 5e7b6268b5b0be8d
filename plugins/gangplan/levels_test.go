package gangplan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

func TestLevelArgs(t *testing.T) {
	for args, want := range map[string]struct {
		levels []string
		wrong  string
	}{
		`{}`: {},
		`{"topologyLevels": ["topology.kubernetes.io/zone", "rack"]}`:                   {levels: []string{"topology.kubernetes.io/zone", "rack"}},
		`{"topologyLevels": ["rack", "kubernetes.io/hostname"]}`:                        {levels: []string{"rack", "kubernetes.io/hostname"}},
		`{"topologyPreset": "nvlink"}`:                                                  {levels: []string{"topology.kubernetes.io/zone", "nvidia.com/gpu.clique"}},
		`{"topologyPreset": "gcp"}`:                                                     {wrong: `topologyPreset: Unsupported value: "gcp": supported values: "aws", "gke"`},
		`{"topologyPreset": "gke", "topologyLevels": ["rack"]}`:                         {wrong: "topologyPreset: Forbidden: topologyLevels names the levels already"},
		`{"topologyLevels": ["rack", "rack"]}`:                                          {wrong: "topologyLevels[1]: Duplicate value"},
		`{"topologyLevels": ["rack", "a b"]}`:                                           {wrong: "topologyLevels[1]: Invalid value"},
		`{"topologyLevels": ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]}`: {wrong: "topologyLevels[0]: Invalid value"},
	} {
		a := &LevelArgs{}
		if err := yaml.UnmarshalStrict([]byte(args), a); err != nil {
			t.Fatal(err)
		}
		err := a.Validate().ToAggregate()
		switch {
		case want.wrong == "" && (err != nil || !slices.Equal(a.Levels(), want.levels)):
			t.Errorf("%s: levels %v, error %v, want %v", args, a.Levels(), err, want.levels)
		case want.wrong != "" && (err == nil || !strings.Contains(err.Error(), want.wrong)):
			t.Errorf("%s: error %v, want one that contains %q", args, err, want.wrong)
		}
	}
}

// Every preset is a valid list of levels that nobody can change through what Preset returns.
func TestPresets(t *testing.T) {
	if len(Presets()) == 0 || !slices.IsSorted(Presets()) {
		t.Fatalf("presets %v", Presets())
	}
	for _, name := range Presets() {
		levels := Preset(name)
		if errs := (&LevelArgs{TopologyLevels: levels}).Validate(); len(levels) == 0 || len(errs) > 0 {
			t.Errorf("%s: %v: %v", name, levels, errs)
		}
		if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 || slices.Contains(levels, corev1.LabelHostname) {
			t.Errorf("%s: %v, levels %v", name, msgs, levels)
		}
		levels[0] = "changed"
		if Preset(name)[0] == "changed" {
			t.Errorf("%s can be changed from outside", name)
		}
	}
	if Preset("nobody's") != nil {
		t.Error("there is a preset that nobody named")
	}
}
