package flux

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

// Keys of the ConfigMap.
const (
	initKey       = "init.sh"
	entrypointKey = "entrypoint.sh"
	brokerKey     = "broker.toml"
	jobKey        = "job.sh"
)

var (
	//go:embed scripts/init.sh
	initScript string

	//go:embed scripts/entrypoint.sh
	entrypointScript string
)

func configMapName(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + "-flux-entrypoint"
}

// configMap returns the scripts, which are the same for every TrainJob, and what they read.
func configMap(info *runtime.Info, trainJob *v1alpha1.TrainJob, trainer *runtime.PodSet, node *corev1.Container) *corev1.ConfigMap {
	lead, subdomain, _ := strings.Cut(info.Endpoint(trainJob, trainer, 0, 0), ".")
	hosts := hostlist(strings.TrimSuffix(lead, "-0"), trainer.Count)
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: child.Metadata(trainJob, configMapName(trainJob)),
		Data: map[string]string{
			initKey:       initScript,
			entrypointKey: entrypointScript,
			brokerKey:     broker(hosts, subdomain, settingsOf(info, trainJob)),
			jobKey:        job(lead, hosts, trainer.Count, tasks(info, trainJob), runtime.AcceleratorsOf(&node.Resources).Count),
		},
	}
}

// tasks returns the processes of each node.
func tasks(info *runtime.Info, trainJob *v1alpha1.TrainJob) int32 {
	if trainer := trainJob.Spec.Trainer; trainer != nil && trainer.NumProcPerNode != nil {
		return *trainer.NumProcPerNode
	}
	return ptr.Deref(policyOf(info).NumProcPerNode, 1)
}

// broker returns the configuration of the brokers: how they find each other, and what they have.
func broker(hosts, subdomain string, settings map[string]string) string {
	return fmt.Sprintf(`[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "%[1]s/config/etc/flux/system/R"

[bootstrap]
curve_cert = "%[1]s/config/etc/curve/curve.cert"
default_port = 8050
default_bind = "tcp://%[2]s:%%p"
default_connect = "tcp://%%h.%[3]s:%%p"
hosts = [{ host = "%[4]s" }]

[archive]
dbpath = "%[1]s/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = "%[5]s"
`, installPath, settings[envNetworkDevice], subdomain, hosts, settings[envQueuePolicy])
}

// job returns the shell variables that the entrypoint reads. Flux counts a core for each process, and shares a
// node's accelerators out among its processes.
func job(lead, hosts string, nodes, tasks, devices int32) string {
	gpus, perTask := "", ""
	if devices > 0 {
		gpus = idset(devices)
	}
	if share := devices / max(tasks, 1); share > 0 {
		perTask = fmt.Sprintf(" -g %d", share)
	}
	return fmt.Sprintf("lead='%s'\nhosts='%s'\ncores='%s'\ngpus='%s'\nrun_flags='-N %d -n %d%s'\n",
		lead, hosts, idset(tasks), gpus, nodes, int64(nodes)*int64(tasks), perTask)
}
