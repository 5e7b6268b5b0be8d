package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	kubeconfig.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeConfig writes a KubeSchedulerConfiguration that ends with the given fields.
func writeConfig(t *testing.T, api *rest.Config, fields string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	content := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: false}
%s`, writeKubeconfig(t, api), fields)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const gangProfile = `
profiles:
- schedulerName: muster-scheduler
  plugins:
    queueSort: {disabled: [{name: "*"}], enabled: [{name: Coscheduling}]}
    multiPoint: {enabled: [{name: Coscheduling}]}
`

// TestRunRefuses covers what Run must notice before anything works, and say.
func TestRunRefuses(t *testing.T) {
	trainerServer := func(t *testing.T) *rest.Config { return apiServer(t, trainerAPI) }
	for _, test := range []struct {
		name   string
		server func(t *testing.T) *rest.Config
		config string
		args   []string
		want   []string
	}{
		{
			name: "an unknown controller", server: trainerServer, args: []string{"--controllers=gang"},
			want: []string{`--controllers: unknown controller "gang"`},
		},
		{
			name: "missing custom resources", server: func(t *testing.T) *rest.Config { return apiServer(t, podGroupAPI) },
			want: []string{"controller trainer needs trainjobs of trainer.kubeflow.org/v1alpha1", "jobsets"},
		},
		{
			name: "an unknown field of the configuration", server: trainerServer, config: "leaderElect: true\n",
			want: []string{"--config", `unknown field "leaderElect"`},
		},
		{
			name: "an unknown plugin", server: trainerServer,
			config: strings.ReplaceAll(gangProfile, "Coscheduling", "Gangs"),
			want:   []string{"scheduler: ", "Gangs"},
		},
		{
			name: "an unknown argument of the plugin", server: trainerServer,
			config: gangProfile + "  pluginConfig: [{name: Coscheduling, args: {permitWaitingSeconds: 5}}]\n",
			want:   []string{"scheduler: ", "Coscheduling", `unknown field "permitWaitingSeconds"`},
		},
		{
			name: "a bad argument of the plugin", server: trainerServer,
			config: gangProfile + "  pluginConfig: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 901}}]\n",
			want:   []string{"scheduler: ", "Coscheduling", "permitWaitingTimeSeconds: Invalid value: 901"},
		},
		{
			name: "a bad flag of kube-scheduler", server: trainerServer, args: []string{"--secure-port=99999"},
			want: []string{"scheduler: ", "--secure-port 99999"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"--config=" + writeConfig(t, test.server(t), test.config), "--secure-port=0"}, test.args...)
			opts, err := parse(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			err = within(t, func() error { return Run(testContext(t), opts) })
			if err == nil {
				t.Fatal("want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in %v", want, err)
				}
			}
		})
	}
}

func TestRunRefusesAGateWithoutItsAPI(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true,
	})
	file := writeConfig(t, apiServer(t, trainerAPI), gangProfile)
	for _, args := range [][]string{nil, {"--controllers="}} {
		opts, err := parse(t, append([]string{"--config=" + file, "--secure-port=0"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		err = within(t, func() error { return Run(testContext(t), opts) })
		if err == nil || !strings.Contains(err.Error(), "feature gate GenericWorkload needs podgroups of scheduling.k8s.io/v1beta1") {
			t.Errorf("%v: want an error that names the gate and the API, got %v", args, err)
		}
	}
}

// With the gates on, Kubernetes enables a generator of its own beside ours.
func TestRunRefusesTwoGenerators(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload:                 true,
		features.TopologyAwareWorkloadScheduling: true,
	})
	both := strings.ReplaceAll(gangProfile, "multiPoint: {enabled: [{name: Coscheduling}]}", "multiPoint: {enabled: [{name: Coscheduling}, {name: GPUTopology}]}")
	opts, err := parse(t, "--config="+writeConfig(t, apiServer(t, trainerAPI), both), "--secure-port=0")
	if err != nil {
		t.Fatal(err)
	}
	err = within(t, func() error { return Run(testContext(t), opts) })
	for _, want := range []string{"--config", `profile "muster-scheduler"`, "TopologyPlacementGenerator", "GPUTopology", "plugins.placementGenerate.disabled"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

// Without the scheduler, its feature gates need nothing.
func TestControllersAloneIgnoreTheSchedulersGates(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true,
	})
	opts, err := parse(t, "--scheduler=false", "--controllers=podgroup", "--kubeconfig="+writeKubeconfig(t, apiServer(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	err = within(t, func() error { return Run(testContext(t), opts) })
	if err == nil || strings.Contains(err.Error(), "GenericWorkload") || !strings.Contains(err.Error(), "controller podgroup needs") {
		t.Errorf("want only the controller's needs named, got %v", err)
	}
}

// A run that fails to start gives back what is unique in the process, so that the next can start.
func TestRunAfterAFailedRun(t *testing.T) {
	server := apiServer(t, trainerAPI)
	config := writeConfig(t, server, strings.ReplaceAll(gangProfile, "Coscheduling", "Gangs"))
	for range 2 {
		opts, err := parse(t, "--config="+config, "--secure-port=0")
		if err != nil {
			t.Fatal(err)
		}
		err = within(t, func() error { return Run(testContext(t), opts) })
		if err == nil || !strings.Contains(err.Error(), "Gangs") {
			t.Fatalf("want the unknown plugin named, got %v", err)
		}
	}
}

func TestConnectionComesFromTheConfigurationOrTheFlags(t *testing.T) {
	logger := testLogger(t)
	fromFile := &rest.Config{Host: "http://from-file.example"}
	fromFlag := &rest.Config{Host: "http://from-flag.example"}
	file := writeConfig(t, fromFile, "")
	flag := writeKubeconfig(t, fromFlag)
	for _, test := range []struct {
		args []string
		host string
		qps  float32
	}{
		{[]string{"--config=" + file}, fromFile.Host, 50},
		{[]string{"--kubeconfig=" + flag, "--kube-api-qps=7"}, fromFlag.Host, 7},
		{[]string{"--kubeconfig=" + flag, "--config=" + file}, fromFile.Host, 50},
		{[]string{"--config=" + file, "--master=http://master.example"}, "http://master.example", 50},
	} {
		opts, err := parse(t, test.args...)
		if err != nil {
			t.Fatal(err)
		}
		configuration, err := opts.configuration(logger)
		if err != nil {
			t.Fatalf("%v: %v", test.args, err)
		}
		config, err := opts.restConfig(configuration)
		if err != nil {
			t.Fatalf("%v: %v", test.args, err)
		}
		if config.Host != test.host || config.QPS != test.qps {
			t.Errorf("%v: got %s at %v requests a second, want %s at %v", test.args, config.Host, config.QPS, test.host, test.qps)
		}
	}
	opts, err := parse(t, "--config=/nowhere/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opts.configuration(logger); err == nil || !strings.Contains(err.Error(), "/nowhere/config.yaml") {
		t.Errorf("want the missing file named, got %v", err)
	}
}

func TestCommandTakesNoArguments(t *testing.T) {
	command := NewCommand()
	command.SetArgs([]string{"demo"})
	command.SetErr(t.Output())
	command.SetOut(t.Output())
	if err := command.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), "demo") {
		t.Errorf("want an error that names the argument, got %v", err)
	}
}
