package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// memberLabel marks the members of a scenario's gang, whichever API makes them members.
const memberLabel = "muster.dev/test-member"

// performance is one scenario in one mode.
type performance struct {
	*scene
	mode     mode
	scenario *scenario
}

// playScenarios plays every scenario in a mode, one after another on the shared cluster.
func playScenarios(t *testing.T, m mode) {
	s := newScene(t)
	m.start(s)
	for i := range scenarios {
		sc := &scenarios[i]
		t.Run(sc.name, func(t *testing.T) {
			if why := sc.unfit[m.name()]; why != "" {
				t.Skipf("%s mode: %s", m.name(), why)
			}
			(&performance{scene: newScene(t), mode: m, scenario: sc}).play()
		})
	}
}

func (p *performance) play() {
	p.Helper()
	for _, r := range p.scenario.racks {
		p.add(r)
	}
	p.occupy()
	for i, st := range p.scenario.steps {
		if st.do != nil {
			st.do(p)
		} else if i == 0 {
			p.mode.create(p.scene, p.scenario.gang.minMember, p.scenario.gang.annotations)
			p.join(p.scenario.gang.roles...)
		}
		p.expect(&st)
		if p.Failed() {
			return
		}
	}
}

// expect waits for what a step leads to.
func (p *performance) expect(st *step) {
	p.Helper()
	if len(st.says) > 0 {
		p.await(st.what+": its words", func() string {
			words := p.mode.refusal(p.scene)
			if st.by != "" {
				words = p.said(st.by)
			}
			for _, part := range st.says {
				if !strings.Contains(words, part) {
					return fmt.Sprintf("%q does not contain %q", words, part)
				}
			}
			return ""
		})
	}
	p.await(st.what+": bound members", func() string {
		if at := p.places(); len(at) != st.bound {
			return fmt.Sprintf("%d bound, want %d: %v; the gang says: %s", len(at), st.bound, at, p.mode.refusal(p.scene))
		}
		return ""
	})
	if st.where != nil {
		if why := st.where(p.places()); why != "" {
			p.Errorf("%s: %s: %v", st.what, why, p.places())
		}
	}
}

// places returns where the gang's bound members are.
func (p *performance) places() places {
	p.Helper()
	pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
	p.must(kube.List(p.ctx, pods, client.InNamespace(p.namespace), client.HasLabels{memberLabel}))
	p.must(kube.List(p.ctx, nodes))
	at := map[string]stand{}
	for _, n := range nodes.Items {
		at[n.Name] = stand{node: n.Name, rack: n.Labels[rackLevel], zone: n.Labels[zoneLevel]}
	}
	out := places{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			out[pod.Labels[memberLabel]] = at[pod.Spec.NodeName]
		}
	}
	return out
}

// said returns why a pod is not scheduled.
func (p *performance) said(pod string) string {
	obj := &corev1.Pod{}
	if err := kube.Get(p.ctx, types.NamespacedName{Namespace: p.namespace, Name: pod}, obj); err != nil {
		return err.Error()
	}
	for _, c := range obj.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// join makes the pods of roles members of the gang.
func (p *performance) join(roles ...role) {
	p.Helper()
	for i := range roles {
		for index := range roles[i].count {
			p.create(roles[i].pod(p.scene, p.mode, roles[i].from+index))
		}
	}
}

// add adds a rack's nodes; names go on after those that are there.
func (p *performance) add(r rack) {
	p.Helper()
	labels := map[string]string{}
	if r.zone != "" {
		labels[zoneLevel] = r.zone
	}
	if !r.unlabelled {
		labels[rackLevel] = r.name
	}
	p.nodes(r.nodes, controlplane.NodeShape{NamePrefix: r.name, Labels: labels})
}

// occupy puts other pods on the busy nodes.
func (p *performance) occupy() {
	p.Helper()
	busy := 0
	for _, r := range p.scenario.racks {
		for i := range r.busy {
			node := fmt.Sprintf("%s-%d", r.name, i)
			hog := p.pod("hog-"+node, "", 8)
			hog.Spec.NodeSelector = map[string]string{hostLevel: node}
			p.create(hog)
			busy++
		}
	}
	p.await("other pods", func() string {
		pods := &corev1.PodList{}
		p.must(kube.List(p.ctx, pods, client.InNamespace(p.namespace)))
		bound := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				bound++
			}
		}
		if bound != busy {
			return fmt.Sprintf("%d of %d bound", bound, busy)
		}
		return ""
	})
}

// free removes the other pods of a rack.
func (p *performance) free(name string) {
	p.Helper()
	for _, r := range p.scenario.racks {
		for i := range r.busy {
			if r.name == name {
				p.remove(fmt.Sprintf("hog-%s-%d", r.name, i))
			}
		}
	}
}

// label sets labels on a rack's nodes.
func (p *performance) label(name string, labels map[string]string) {
	p.Helper()
	for _, r := range p.scenario.racks {
		for i := range r.nodes {
			if r.name == name {
				p.patch(node(fmt.Sprintf("%s-%d", r.name, i)), map[string]any{"labels": labels})
			}
		}
	}
}

// replace deletes a member and makes another for its index, of another name, as its Job would.
func (p *performance) replace(name string, index int) {
	p.Helper()
	for i := range p.scenario.gang.roles {
		if r := &p.scenario.gang.roles[i]; r.name == name {
			p.remove(fmt.Sprintf("%s-%d", name, index))
			pod := r.pod(p.scene, p.mode, index)
			pod.Name += "-again"
			p.create(pod)
		}
	}
}

func (p *performance) restart() { p.mode.restart(p.scene) }

func (p *performance) annotate(annotations map[string]string) {
	p.Helper()
	p.mode.annotate(p.scene, annotations)
}

func (p *performance) annotatePod(name string, annotations map[string]string) {
	p.Helper()
	p.patchAnnotations(p.pod(name, "", 0), annotations)
}

// patchAnnotations sets annotations, or removes them where the value is "".
func (s *scene) patchAnnotations(obj client.Object, annotations map[string]string) {
	s.Helper()
	values := map[string]any{}
	for key, value := range annotations {
		if values[key] = value; value == "" {
			values[key] = nil
		}
	}
	s.patch(obj, map[string]any{"annotations": values})
}

// patch merges into an object's metadata.
func (s *scene) patch(obj client.Object, metadata map[string]any) {
	s.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": metadata})
	s.must(err)
	s.must(kube.Patch(s.ctx, obj, client.RawPatch(types.MergePatchType, raw)))
}

// classic expresses gangs by the PodGroup of scheduling.x-k8s.io.
type classic struct{}

func (classic) name() string { return "classic" }

func (c classic) start(s *scene) {
	s.Helper()
	scheduler.Stop()
	s.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.startWithLevels(fmt.Sprintf(`{"topologyLevels": [%q, %q]}`, zoneLevel, rackLevel))
}

func (c classic) restart(s *scene) {
	s.Helper()
	scheduler.Stop()
	s.startWithLevels(fmt.Sprintf(`{"topologyLevels": [%q, %q]}`, zoneLevel, rackLevel))
}

// startWithLevels starts the shared scheduler with the given topology arguments for its plugins.
func (s *scene) startWithLevels(args string) {
	s.Helper()
	var err error
	scheduler, err = startSchedulerWith(context.Background(), func(c *configv1.KubeSchedulerConfiguration) {
		setPluginArgs(&c.Profiles[0], "Coscheduling", args)
	})
	s.must(err)
}

// setPluginArgs sets a plugin's arguments, in place of those it has.
func setPluginArgs(profile *configv1.KubeSchedulerProfile, plugin, args string) {
	raw := runtime.RawExtension{Raw: []byte(args)}
	for i := range profile.PluginConfig {
		if profile.PluginConfig[i].Name == plugin {
			profile.PluginConfig[i].Args = raw
			return
		}
	}
	profile.PluginConfig = append(profile.PluginConfig, configv1.PluginConfig{Name: plugin, Args: raw})
}

func (classic) group(s *scene) *podgroups.PodGroup {
	return &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: s.namespace}}
}

func (c classic) create(s *scene, minMember int, annotations map[string]string) {
	s.Helper()
	g := c.group(s)
	g.Annotations = annotations
	g.Spec.MinMember = int32(minMember)
	s.must(kube.Create(s.ctx, g))
}

func (c classic) annotate(s *scene, annotations map[string]string) {
	s.Helper()
	s.patchAnnotations(c.group(s), annotations)
}

func (classic) join(pod *corev1.Pod) { pod.Labels[podgroups.GroupLabel] = "gang" }

func (c classic) refusal(s *scene) string {
	s.Helper()
	g := c.group(s)
	if err := kube.Get(s.ctx, client.ObjectKeyFromObject(g), g); err != nil {
		return err.Error()
	}
	if refused := meta.FindStatusCondition(g.Status.Conditions, podgroups.ConditionUnschedulable); refused != nil && refused.Status == metav1.ConditionTrue {
		return refused.Message
	}
	return ""
}

func TestTopologyScenarios(t *testing.T) { playScenarios(t, classic{}) }

// What is wrong with a topology is said in the same words on the PodGroup, on each pod and in an event, under a
// reason of its own.
func TestInvalidTopologyIsSaidEverywhere(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	classic{}.create(s, 2, required("example.com/rack"))
	s.create(s.members("gang", 2, 8)...)
	c := s.awaitRefused("gang")
	if c.Reason != "InvalidTopology" || !strings.Contains(c.Message, `"example.com/rack" is not a topology level`) {
		t.Fatalf("%s: %s", c.Reason, c.Message)
	}
	p := performance{scene: s}
	s.await("the same words on every member", func() string {
		for _, pod := range []string{"gang-0", "gang-1"} {
			if words := p.said(pod); !strings.Contains(words, c.Message) {
				return fmt.Sprintf("%s says %q", pod, words)
			}
		}
		return ""
	})
	s.await("the same words in an event", func() string {
		events := &eventsv1.EventList{}
		s.must(kube.List(s.ctx, events, client.InNamespace(s.namespace)))
		for _, e := range events.Items {
			if e.Regarding.Kind == "PodGroup" && e.Reason == "InvalidTopology" && e.Note == c.Message {
				return ""
			}
		}
		return fmt.Sprintf("%d events, none of the PodGroup with the reason", len(events.Items))
	})
	// The controller repeats it where users look first.
	scheduled := s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionFalse)
	s.await("condition Scheduled", func() string {
		scheduled = s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionFalse)
		if scheduled.Message != c.Message {
			return scheduled.Message
		}
		return ""
	})
}

// The levels of a preset are known by their labels.
func TestTopologyPreset(t *testing.T) {
	const subblock = "cloud.google.com/gce-topology-subblock"
	s := newScene(t)
	scheduler.Stop()
	s.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.startWithLevels(`{"topologyPreset": "gke"}`)
	for name, n := range map[string]int{"sb1": 2, "sb2": 3} {
		s.nodes(n, controlplane.NodeShape{NamePrefix: name, Labels: map[string]string{"cloud.google.com/gce-topology-block": "b", subblock: name}})
	}
	classic{}.create(s, 3, required(subblock))
	s.create(s.members("gang", 3, 8)...)
	s.awaitBound("gang", 3)
	for pod, node := range s.bound(s.namespace, "gang") {
		if !strings.HasPrefix(node, "sb2-") {
			t.Errorf("%s is on %s, want sub-block sb2", pod, node)
		}
	}
}

// The pods of a real Job have names that tell no rank; their index label does. Rank 10 follows rank 9.
func TestSlicesOfAJob(t *testing.T) {
	s := newScene(t)
	classic{}.start(s)
	for _, name := range []string{"r1", "r2", "r3"} {
		s.nodes(5, controlplane.NodeShape{NamePrefix: name, Labels: map[string]string{rackLevel: name}})
	}
	s.group("gang", 12)
	template := s.pod("", "gang", 8)
	template.Annotations = sliced(rackLevel, 4)
	s.must(kube.Create(s.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: s.namespace},
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: ptr.To[int32](12), Parallelism: ptr.To[int32](12),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec},
		},
	}))
	s.awaitBound("gang", 12)
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	nodes := make([]string, 12)
	for _, pod := range pods.Items {
		if rank, ok := podgroup.Rank(&pod); ok {
			nodes[rank] = pod.Spec.NodeName
		}
	}
	for rank := 1; rank < 12; rank++ {
		a, b := nodes[rank-1], nodes[rank]
		rackOfA, _, _ := strings.Cut(a, "-")
		rackOfB, _, _ := strings.Cut(b, "-")
		if same := rackOfA == rackOfB; rank%4 != 0 && (!same || number(a) > number(b)) {
			t.Errorf("ranks %d and %d of one slice are on %s and %s; all: %v", rank-1, rank, a, b, nodes)
		}
	}
}
