package coscheduling

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// startAllowance is added to a framework's own timeout: that counts from when its first process runs, the gang's
// deadline from when its first pod is bound, and images are pulled between the two.
const startAllowance = 10 * time.Minute

// defaultSSHArgs is what the trainer itself tells Open MPI, which is no word of the user's.
const defaultSSHArgs = "-o ConnectionAttempts=10"

var (
	connectionAttempts = regexp.MustCompile(`\bConnectionAttempts[= ]+(\d{1,5})\b`)
	connectTimeout     = regexp.MustCompile(`\bConnectTimeout[= ]+(\d{1,4})\b`)
)

// limitRendezvous says on a PodGroup how long its members may take to meet, where the TrainJob or its runtime do: by
// the annotation on the TrainJob, or else on the runtime's template, or else by the timeout that they give the
// training framework. JAX takes its timeout as an argument of a function, and nothing here can tell it.
func limitRendezvous(to *group.PodGroup, g *gang.Gang, trainJob *v1alpha1.TrainJob) {
	for _, key := range []string{podgroup.RendezvousTimeoutAnnotation, podgroup.MatchPolicyAnnotation} {
		if value, ok := trainJob.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&to.ObjectMeta, key, value)
		}
	}
	if _, stated := to.Annotations[podgroup.RendezvousTimeoutAnnotation]; stated {
		return
	}
	if timeout := frameworkTimeout(g.PodSets); timeout > 0 {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, podgroup.RendezvousTimeoutAnnotation, (timeout + startAllowance).String())
	}
}

// frameworkTimeout returns the longest time that the containers let their framework wait for its other nodes, 0 if
// none says.
func frameworkTimeout(podSets []*runtime.PodSet) time.Duration {
	longest := time.Duration(0)
	for _, podSet := range podSets {
		for _, container := range podSet.PodSpec().Containers {
			longest = max(longest, containerTimeout(&container))
		}
	}
	return longest
}

func containerTimeout(container *corev1.Container) time.Duration {
	words := wordsOf(container)
	ssh, elastic := []string{strings.Join(words, " ")}, rendezvousConfigs(words)
	for _, env := range container.Env {
		switch env.Name {
		case "PET_RDZV_CONF":
			elastic = append(elastic, env.Value)
		case "OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args":
			if env.Value != defaultSSHArgs {
				ssh = append(ssh, env.Value)
			}
		}
	}
	longest := time.Duration(0)
	for _, config := range elastic {
		longest = max(longest, elasticTimeout(config))
	}
	for _, args := range ssh {
		longest = max(longest, sshTimeout(args))
	}
	return longest
}

// wordsOf returns the words of the container's command, also of a shell's script.
func wordsOf(container *corev1.Container) []string {
	var words []string
	for _, args := range [][]string{container.Command, container.Args} {
		for _, arg := range args {
			words = append(words, strings.Fields(arg)...)
		}
	}
	return words
}

// rendezvousConfigs returns the values of torchrun's option --rdzv-conf.
func rendezvousConfigs(words []string) []string {
	var configs []string
	for i, word := range words {
		option, value, joined := strings.Cut(strings.Trim(word, `"'`), "=")
		switch {
		case option != "--rdzv-conf" && option != "--rdzv_conf":
		case joined:
			configs = append(configs, value)
		case i+1 < len(words):
			configs = append(configs, words[i+1])
		}
	}
	return configs
}

// elasticTimeout returns how long torchrun waits for its other nodes by such a configuration: join_timeout with the
// c10d backend, timeout with the static one. last_call_timeout runs when enough nodes are there, so it is no part of
// it.
func elasticTimeout(config string) time.Duration {
	values := map[string]time.Duration{}
	for _, pair := range strings.Split(strings.Trim(config, `"'`), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		values[key] = seconds(value)
	}
	if joined := values["join_timeout"]; joined > 0 {
		return joined
	}
	return values["timeout"]
}

// sshTimeout returns how long the launcher of an MPI job tries to reach a worker: ssh tries once a second, or waits as
// long as ConnectTimeout says for each attempt.
func sshTimeout(args string) time.Duration {
	attempts := connectionAttempts.FindStringSubmatch(args)
	if attempts == nil {
		return 0
	}
	each := time.Second
	if stated := connectTimeout.FindStringSubmatch(args); stated != nil {
		each = max(each, seconds(stated[1]))
	}
	return min(seconds(attempts[1])*(each/time.Second), longestTimeout)
}

// longestTimeout keeps sums within what the annotation can say.
const longestTimeout = 300 * 24 * time.Hour

// seconds reads a whole number of seconds, 0 if it is none.
func seconds(value string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(min(n, int64(longestTimeout/time.Second))) * time.Second
}
