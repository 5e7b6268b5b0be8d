package coscheduling

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestDecodeArgs(t *testing.T) {
	for name, tc := range map[string]struct {
		raw     string
		wait    int64
		levels  int
		wantErr string
	}{
		"defaults":         {raw: `{}`, wait: 60},
		"set":              {raw: `{"permitWaitingTimeSeconds": 5, "topologyLevels": ["zone", "example.com/rack"]}`, wait: 5, levels: 2},
		"kind is accepted": {raw: `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "CoschedulingArgs"}`, wait: 60},
		"unknown field":    {raw: `{"permitWaitingSeconds": 5}`, wantErr: `unknown field "permitWaitingSeconds"`},
		"wrong type":       {raw: `{"permitWaitingTimeSeconds": "soon"}`, wantErr: "permitWaitingTimeSeconds"},
		"zero":             {raw: `{"permitWaitingTimeSeconds": 0}`, wantErr: "permitWaitingTimeSeconds: Invalid value: 0: must be from 1 to 900"},
		"over the cap":     {raw: `{"permitWaitingTimeSeconds": 901}`, wantErr: "permitWaitingTimeSeconds: Invalid value: 901"},
		"negative window":  {raw: `{"provisioningWindowSeconds": -1}`, wantErr: "provisioningWindowSeconds: Invalid value: -1: must be from 0 to 86400"},
		"endless window":   {raw: `{"provisioningWindowSeconds": 86401}`, wantErr: "provisioningWindowSeconds: Invalid value: 86401"},
		"negative repair":  {raw: `{"repairTimeoutSeconds": -1}`, wantErr: "repairTimeoutSeconds: Invalid value: -1: must be from 0 to 86400"},
		"endless repair":   {raw: `{"repairTimeoutSeconds": 86401}`, wantErr: "repairTimeoutSeconds: Invalid value: 86401"},
		"no repair":        {raw: `{"repairTimeoutSeconds": 0}`, wait: 60},
		"bad label":        {raw: `{"topologyLevels": ["zone", "not a label"]}`, wantErr: "topologyLevels[1]: Invalid value"},
		"same label twice": {raw: `{"topologyLevels": ["zone", "zone"]}`, wantErr: "topologyLevels[1]: Duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			args, err := decodeArgs(&runtime.Unknown{Raw: []byte(tc.raw)})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), Name) {
					t.Fatalf("error %v, want one that names the plugin and contains %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *args.PermitWaitingTimeSeconds != tc.wait || len(args.TopologyLevels) != tc.levels {
				t.Errorf("got %d seconds and levels %q", *args.PermitWaitingTimeSeconds, args.TopologyLevels)
			}
		})
	}
	if args, err := decodeArgs(nil); err != nil || *args.PermitWaitingTimeSeconds != 60 || *args.RepairTimeoutSeconds != 600 {
		t.Errorf("no arguments: %v, %v", args, err)
	}
}
