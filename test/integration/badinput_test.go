package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Whatever is wrong with a gang is said on its PodGroup, and the room it would have taken stays
// free for others.
func TestGangsThatCannotStartSaySo(t *testing.T) {
	for name, tc := range map[string]struct {
		minMember int32
		members   int
		change    func(i int, p *corev1.Pod)
		group     func(*podgroups.PodGroup)
		condition string
		status    metav1.ConditionStatus
		words     []string
	}{
		"minMember of 0": {
			minMember: 0, members: 2,
			condition: podgroups.ConditionScheduled, status: metav1.ConditionFalse,
			words: []string{"spec.minMember", "0"},
		},
		"more members than will ever come": {
			minMember: 9, members: 2,
			condition: podgroups.ConditionScheduled, status: metav1.ConditionFalse,
			words: []string{"2 of 9 members"},
		},
		"a member of another priority": {
			minMember: 2, members: 2,
			change: func(i int, p *corev1.Pod) {
				if i == 1 {
					p.Spec.PriorityClassName = "system-cluster-critical"
				}
			},
			condition: podgroups.ConditionUnschedulable, status: metav1.ConditionTrue,
			words: []string{"one priority", "gang-1", "2000000000"},
		},
		"a member for another scheduler": {
			minMember: 2, members: 2,
			change: func(i int, p *corev1.Pod) {
				if i == 1 {
					p.Spec.SchedulerName = "somebody-else"
				}
			},
			condition: podgroups.ConditionUnschedulable, status: metav1.ConditionTrue,
			words: []string{"1 name another schedulerName"},
		},
		"a member with a scheduling gate": {
			minMember: 2, members: 2,
			change: func(i int, p *corev1.Pod) {
				if i == 1 {
					p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
				}
			},
			condition: podgroups.ConditionScheduled, status: metav1.ConditionFalse,
			words: []string{"scheduling gates"},
		},
		"minResources beyond the cluster": {
			minMember: 2, members: 2,
			group: func(g *podgroups.PodGroup) {
				g.Spec.MinResources = corev1.ResourceList{gpuResource: resource.MustParse("17")}
			},
			condition: podgroups.ConditionUnschedulable, status: metav1.ConditionTrue,
			words: []string{"minResources", "needed 17, free 16"},
		},
		"negative minResources": {
			minMember: 2, members: 2,
			group: func(g *podgroups.PodGroup) {
				g.Spec.MinResources = corev1.ResourceList{gpuResource: resource.MustParse("-1")}
			},
			condition: podgroups.ConditionScheduled, status: metav1.ConditionFalse,
			words: []string{"spec.minResources"},
		},
		"negative timeout": {
			minMember: 2, members: 2,
			group:     func(g *podgroups.PodGroup) { g.Spec.ScheduleTimeoutSeconds = ptr.To[int32](-1) },
			condition: podgroups.ConditionScheduled, status: metav1.ConditionFalse,
			words: []string{"spec.scheduleTimeoutSeconds"},
		},
		"a resource that no node has": {
			minMember: 2, members: 2,
			change: func(_ int, p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits["example.com/fpga"] = resource.MustParse("1")
			},
			condition: podgroups.ConditionUnschedulable, status: metav1.ConditionTrue,
			words: []string{"gang needs 2 members (with example.com/fpga 1, nvidia.com/gpu 8)", "no node has example.com/fpga"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.nodes(2, controlplane.NodeShape{})
			g := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: s.namespace}}
			g.Spec.MinMember = tc.minMember
			if tc.group != nil {
				tc.group(g)
			}
			s.must(kube.Create(s.ctx, g))
			for i := range tc.members {
				p := s.pod(fmt.Sprintf("gang-%d", i), "gang", 8)
				if tc.change != nil {
					tc.change(i, p)
				}
				s.create(p)
			}
			s.await("the reason", func() string {
				c := s.awaitCondition(s.namespace, "gang", tc.condition, tc.status)
				for _, w := range tc.words {
					if !strings.Contains(c.Message, w) {
						return fmt.Sprintf("%s: %q does not contain %q", c.Reason, c.Message, w)
					}
				}
				return ""
			})
			s.create(s.singles(2, 8)...)
			s.awaitBound("", 2)
			if n := len(s.bound(s.namespace, "gang")); n != 0 {
				t.Errorf("%d members bound", n)
			}
		})
	}
}

func TestNegativeMinMemberIsRejected(t *testing.T) {
	s := newScene(t)
	g := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: s.namespace}}
	g.Spec.MinMember = -1
	if err := kube.Create(s.ctx, g); err == nil || !strings.Contains(err.Error(), "spec.minMember") {
		t.Errorf("created: %v", err)
	}
}

func TestLabelNamingNoPodGroup(t *testing.T) {
	s := newScene(t)
	s.nodes(1, controlplane.NodeShape{})
	s.create(s.pod("lost", "nowhere", 8))
	s.await("an event on the pod", func() string {
		events := &eventsv1.EventList{}
		s.must(kube.List(s.ctx, events, client.InNamespace(s.namespace)))
		for _, e := range events.Items {
			if e.Regarding.Name == "lost" && e.Reason == "PodGroupNotFound" && strings.Contains(e.Note, `"nowhere"`) {
				return ""
			}
		}
		return fmt.Sprintf("%d events", len(events.Items))
	})
	s.create(s.singles(1, 8)...)
	s.awaitBound("", 1)
}

func TestExplanationNamesWhatIsShortAndWhatIsInTheWay(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{NamePrefix: "free"})
	busy := s.nodes(1, controlplane.NodeShape{NamePrefix: "busy"})
	cordoned := s.nodes(1, controlplane.NodeShape{NamePrefix: "cordoned"})
	tainted := s.nodes(1, controlplane.NodeShape{NamePrefix: "tainted"})
	s.nodes(1, controlplane.NodeShape{NamePrefix: "other", Labels: map[string]string{"pool": "other"}})
	s.must(kube.Patch(s.ctx, node(cordoned[0]), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))))
	s.must(kube.Patch(s.ctx, node(tainted[0]), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"taints":[{"key":"dedicated","value":"infra","effect":"NoSchedule"}]}}`))))
	hog := s.pod("hog", "", 6)
	hog.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": busy[0]}
	s.create(hog)
	s.awaitBound("", 1)

	s.group("gang", 4)
	s.create(s.members("gang", 4, 8, func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpDoesNotExist}}}},
		}}}
	})...)
	why := s.awaitRefused("gang").Message
	for _, part := range []string{
		"gang needs 4 members (with nvidia.com/gpu 8", "room for 2", "nvidia.com/gpu: needed 32, free 18 of 24", "of 6 nodes: ",
		"6 used by pod " + s.namespace + "/hog",
		"1 cordoned", "1 outside the node selector or affinity", "1 too little nvidia.com/gpu left", "1 with taint dedicated=infra:NoSchedule",
		"; would fit with 2 more nodes of nvidia.com/gpu 8",
	} {
		if !strings.Contains(why, part) {
			t.Errorf("%q does not contain %q", why, part)
		}
	}
	// The members and an event carry the same words.
	s.await("the same words on every member", func() string {
		pods := &corev1.PodList{}
		s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{podgroups.GroupLabel: "gang"}))
		for _, p := range pods.Items {
			said := false
			for _, c := range p.Status.Conditions {
				said = said || c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, why)
			}
			if !said {
				return fmt.Sprintf("%s does not say so but %+v; PodGroup says %s", p.Name, p.Status.Conditions, s.conditions(s.namespace, "gang"))
			}
		}
		return ""
	})
	s.await("the same words in an event", func() string {
		events := &eventsv1.EventList{}
		s.must(kube.List(s.ctx, events, client.InNamespace(s.namespace)))
		for _, e := range events.Items {
			if e.Regarding.Kind == "PodGroup" && e.Note == why {
				return ""
			}
		}
		return fmt.Sprintf("%d events, none of the PodGroup with the reason", len(events.Items))
	})
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A mistake in the plugin's arguments ends the process at its start, and is named.
func TestWrongPluginArgumentsAreAStartUpError(t *testing.T) {
	s := newScene(t)
	scheduler.Stop()
	s.Cleanup(s.restartScheduler)
	for args, want := range map[string]string{
		`{"permitWaitingSeconds": 5}`:                        `unknown field "permitWaitingSeconds"`,
		`{"permitWaitingTimeSeconds": 0}`:                    "permitWaitingTimeSeconds: Invalid value: 0",
		`{"topologyLevels": ["example.com/rack", "a b"]}`:    "topologyLevels[1]: Invalid value",
		`{"topologyLevels": "topology.kubernetes.io/zone"}`:  "topologyLevels",
		`{"topologyPreset": "gcp"}`:                          `topologyPreset: Unsupported value: "gcp": supported values: "aws", "gke"`,
		`{"topologyPreset": "gke", "topologyLevels": ["a"]}`: "topologyPreset: Forbidden",
	} {
		config, err := manifests.SchedulerConfig(func(c *configv1.KubeSchedulerConfiguration) {
			c.Profiles[0].PluginConfig = []configv1.PluginConfig{{Name: "Coscheduling", Args: runtime.RawExtension{Raw: []byte(args)}}}
		})
		s.must(err)
		started, err := cluster.StartScheduler(s.ctx, controlplane.SchedulerConfig{Configuration: config})
		if err == nil {
			started.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Coscheduling") {
			t.Errorf("%s: error %v, want one that names the plugin and contains %q", args, err, want)
		}
	}
}
