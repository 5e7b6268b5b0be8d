package gputopology

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestDefaultArgs(t *testing.T) {
	for name, obj := range map[string]runtime.Object{"no arguments": nil, "empty": &runtime.Unknown{Raw: []byte("{}")}} {
		args, err := decodeArgs(obj)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(args.Accelerators, DefaultAccelerators) || *args.Alternatives != 2 || len(args.Levels()) != 0 {
			t.Errorf("%s: %+v", name, args)
		}
	}
}

func TestBadArgsAreNamed(t *testing.T) {
	for _, test := range []struct{ raw, want string }{
		{"levels: []", `unknown field "levels"`},
		{"accelerators: []", "accelerators: Required value"},
		{"accelerators: [gpu]", "accelerators[0]: Invalid value: \"gpu\": must be an extended resource"},
		{"accelerators: [cpu*]", "accelerators[0]: Invalid value"},
		{"accelerators: ['/gpu']", "accelerators[0]: Invalid value"},
		{"accelerators: [nvidia.com/]", "accelerators[0]: Invalid value"},
		{"accelerators: [nvidia.com/gpu, 'nvidia.com/g*u']", "accelerators[1]: Invalid value"},
		{"accelerators: [kubernetes.io/batch-cpu]", "not one of Kubernetes' own"},
		{"accelerators: [nvidia.com/gpu, nvidia.com/gpu]", "accelerators[1]: Duplicate value"},
		{"topologyLevels: [a b]", "topologyLevels[0]: Invalid value"},
		{"topologyPreset: moon", "topologyPreset: Unsupported value"},
		{"alternatives: -1", "alternatives: Invalid value: -1: must be from 0 to 8"},
		{"alternatives: 9", "alternatives: Invalid value: 9"},
		{"alternatives: many", "alternatives"},
	} {
		_, err := decodeArgs(&runtime.Unknown{Raw: []byte(test.raw)})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "plugin "+Name) {
			t.Errorf("%s: got %v, want %q", test.raw, err, test.want)
		}
	}
}

func TestGoodArgs(t *testing.T) {
	args, err := decodeArgs(&runtime.Unknown{Raw: []byte("{accelerators: ['gpu.intel.com/*', 'nvidia.com/mig-*', example.com/npu], alternatives: 0}")})
	if err != nil {
		t.Fatal(err)
	}
	if len(args.Accelerators) != 3 || *args.Alternatives != 0 {
		t.Errorf("%+v", args)
	}
}
