package coscheduling

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestRendezvousTimeout(t *testing.T) {
	env := func(name, value string) func(*corev1.Container) {
		return func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value}) }
	}
	command := func(words ...string) func(*corev1.Container) {
		return func(c *corev1.Container) { c.Command = words }
	}
	args := func(words ...string) func(*corev1.Container) {
		return func(c *corev1.Container) { c.Args = words }
	}
	for name, tc := range map[string]struct {
		container func(*corev1.Container)
		template  string
		trainJob  string
		want      string
	}{
		"nothing stated":              {container: command("torchrun", "train.py")},
		"torchrun":                    {container: command("torchrun", "--rdzv-conf=join_timeout=1200", "train.py"), want: "30m0s"},
		"torchrun in two words":       {container: args("--rdzv-conf", "join_timeout=1200,read_timeout=60"), want: "30m0s"},
		"torchrun's older spelling":   {container: command("torchrun", "--rdzv_conf=join_timeout=60"), want: "11m0s"},
		"torchrun in a script":        {container: command("bash", "-c", "cd /x && torchrun --rdzv_conf='timeout=900' train.py"), want: "25m0s"},
		"last call is no part of it":  {container: args("--rdzv-conf=last_call_timeout=300")},
		"both, joining counts":        {container: args("--rdzv-conf=timeout=900,join_timeout=300,last_call_timeout=30"), want: "15m0s"},
		"variable":                    {container: env("PET_RDZV_CONF", "timeout=900"), want: "25m0s"},
		"the longer one":              {container: func(c *corev1.Container) { env("PET_RDZV_CONF", "timeout=900")(c); args("--rdzv-conf=timeout=60")(c) }, want: "25m0s"},
		"no number":                   {container: env("PET_RDZV_CONF", "timeout=long")},
		"negative":                    {container: env("PET_RDZV_CONF", "timeout=-1")},
		"unfinished":                  {container: args("--rdzv-conf")},
		"another option":              {container: args("--rdzv-config=timeout=900")},
		"beyond what can be said":     {container: env("PET_RDZV_CONF", "timeout=9223372036854775807"), want: "7200h10m0s"},
		"ssh attempts":                {container: env("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=600"), want: "20m0s"},
		"ssh attempts and timeout":    {container: env("PRTE_MCA_plm_ssh_args", "-o ConnectTimeout=5 -o ConnectionAttempts=60"), want: "15m0s"},
		"ssh attempts of the trainer": {container: env("OMPI_MCA_plm_rsh_args", defaultSSHArgs)},
		"ssh attempts of mpirun":      {container: args("--mca", "plm_rsh_args", "-o ConnectionAttempts=300"), want: "15m0s"},
		"ssh without attempts":        {container: env("OMPI_MCA_plm_rsh_args", "-o ConnectTimeout=5")},
		"the most of ssh":             {container: env("OMPI_MCA_plm_rsh_args", "-o ConnectTimeout=9999 -o ConnectionAttempts=99999"), want: "7200h10m0s"},
		"the template wins":           {container: env("PET_RDZV_CONF", "timeout=900"), template: "5m", want: "5m"},
		"the TrainJob wins":           {container: env("PET_RDZV_CONF", "timeout=900"), template: "5m", trainJob: "7m", want: "7m"},
		"none, says the TrainJob":     {container: env("PET_RDZV_CONF", "timeout=900"), trainJob: "0", want: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			of := trainJob()
			info := newInfo(t, policy, job("node", v1alpha1.AncestorTrainer, 4))
			spec := info.PodSets[0].PodSpec()
			spec.Containers = []corev1.Container{{Name: "node"}}
			tc.container(&spec.Containers[0])
			if tc.template != "" {
				info.Annotations = map[string]string{podgroup.RendezvousTimeoutAnnotation: tc.template}
			}
			if tc.trainJob != "" {
				of.Annotations = map[string]string{podgroup.RendezvousTimeoutAnnotation: tc.trainJob}
			}
			objects, err := New(nil, nil, "").Build(context.Background(), info, of)
			if err != nil || len(objects) != 1 {
				t.Fatal(objects, err)
			}
			got, stated := objects[0].(*group.PodGroup).Annotations[podgroup.RendezvousTimeoutAnnotation]
			if got != tc.want || stated != (tc.want != "") {
				t.Errorf("timeout %q, want %q", got, tc.want)
			}
			if _, err := podgroup.ParseSettings(objects[0].GetAnnotations()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRendezvousTimeoutOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.String(), rapid.StringMatching(`(--rdzv.conf=?)?(join_)?timeout=[0-9]{1,30}`), rapid.StringMatching(`Connect(ionAttempts|Timeout)[ =][0-9]{1,12}`))
		container := &corev1.Container{Args: rapid.SliceOf(word).Draw(t, "args")}
		if got := containerTimeout(container); got < 0 || got > longestTimeout {
			t.Fatalf("timeout %s", got)
		}
	})
}

func TestGivenUpGangSaysWhy(t *testing.T) {
	g := &group.PodGroup{}
	g.Name = "llm"
	g.Annotations = podgroup.Record{Attempts: 5, ReleasedAt: time.Unix(1, 0), GivenUp: true}.Annotations()
	if got := GivenUp(g); got != "" {
		t.Errorf("before the status tells: %q", got)
	}
	g.Status.Phase = "Failed"
	if got := GivenUp(g); got != "PodGroup llm was given up: its members did not meet in time, 5 times in a row" {
		t.Errorf("without conditions: %q", got)
	}
	g.Status = podgroup.ComputeStatus(g, nil, time.Unix(2, 0))
	if got := GivenUp(g); !strings.Contains(got, "; the last time, ") {
		t.Errorf("with conditions: %q", got)
	}
	delete(g.Annotations, podgroup.GivenUpAnnotation)
	if got := GivenUp(g); got != "" {
		t.Errorf("taken up again: %q", got)
	}
}
