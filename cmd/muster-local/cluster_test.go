package main

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
)

func TestFlagsAreValidated(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		err  string
	}{
		"nodes":                {args: []string{"--nodes=-1"}, err: "--nodes"},
		"GPUs":                 {args: []string{"--gpus-per-node=-1"}, err: "--gpus-per-node"},
		"topology":             {args: []string{"--topology=cupboard=2"}, err: `--topology: topology: level "cupboard"`},
		"more racks than node": {args: []string{"--nodes=2", "--topology=rack=4"}, err: "4 domains are more than the 2 nodes"},
		"scheduler":            {args: []string{"--scheduler=best"}, err: `--scheduler: "best" is not one of muster, default, none`},
		"native gangs":         {args: []string{"--feature-gates=GenericWorkload=true"}, err: "runtimeConfig scheduling.k8s.io/v1beta1=true"},
		"feature gate":         {args: []string{"--feature-gates=GenericWorkload=perhaps"}, err: "feature-gates"},
		"argument":             {args: []string{"now"}, err: `unknown command "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(append([]string{"up"}, test.args...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
}

func TestDefaultTopology(t *testing.T) {
	for nodes, want := range map[int]string{0: "zone=1,rack=1", 1: "zone=1,rack=1", 3: "zone=1,rack=3", 4: "zone=1,rack=4", 100: "zone=1,rack=4"} {
		if got := defaultTopology(nodes); got != want {
			t.Errorf("%d nodes: %s, want %s", nodes, got, want)
		}
	}
}

func TestSchedulerFitsLocally(t *testing.T) {
	for name, test := range map[string]struct {
		topology string
		levels   []string
	}{
		"no topology":   {"", nil},
		"zone and rack": {"zone=1,rack=2", []string{"topology.kubernetes.io/zone", "topology.muster.dev/rack"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{topology: test.topology, scheduler: schedulerMuster, shape: controlplane.NodeShape{Count: 4}}
			if err := o.validate(); err != nil {
				t.Fatal(err)
			}
			content, err := manifests.SchedulerConfig(o.fitLocally)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				Profiles []struct {
					SchedulerName string
					Plugins       any
					PluginConfig  []struct {
						Name string
						Args struct{ TopologyLevels []string }
					}
				}
			}
			if err := yaml.Unmarshal(content, &config); err != nil {
				t.Fatal(err)
			}
			if len(config.Profiles) != 2 || config.Profiles[0].SchedulerName != "muster-scheduler" || config.Profiles[1].SchedulerName != "default-scheduler" {
				t.Fatalf("profiles %+v", config.Profiles)
			}
			for _, profile := range config.Profiles {
				if profile.Plugins == nil {
					t.Errorf("profile %s lacks the plugins", profile.SchedulerName)
				}
				told := map[string][]string{}
				for _, c := range profile.PluginConfig {
					told[c.Name] = c.Args.TopologyLevels
				}
				for _, plugin := range []string{"Coscheduling", "GPUTopology"} {
					if !slices.Equal(told[plugin], test.levels) {
						t.Errorf("profile %s tells %s the levels %q, want %q", profile.SchedulerName, plugin, told[plugin], test.levels)
					}
				}
			}
		})
	}
}
