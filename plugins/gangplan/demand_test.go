package gangplan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2/ktesting"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

func requesting(list map[corev1.ResourceName]string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
	for name, value := range list {
		r.Requests[name] = resource.MustParse(value)
	}
	return r
}

// What a member requests is what NodeResourcesFit counts against a node.
func TestRequestsOfMembers(t *testing.T) {
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want []string
	}{
		"containers add up": {
			spec: corev1.PodSpec{Containers: []corev1.Container{
				{Resources: requesting(map[corev1.ResourceName]string{"cpu": "2", "nvidia.com/gpu": "1"})},
				{Resources: requesting(map[corev1.ResourceName]string{"cpu": "500m", "nvidia.com/gpu": "2"})},
			}},
			want: []string{"nvidia.com/gpu 3", "cpu 2500", "pods 1"},
		},
		"devices of every vendor, by name": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{
				"nvidia.com/mig-1g.10gb": "2", "amd.com/gpu": "8", "google.com/tpu": "4", "aws.amazon.com/neuron": "16", "rdma/hca_shared_devices_a": "1", "hugepages-2Mi": "4Mi",
			})}}},
			want: []string{"amd.com/gpu 8", "aws.amazon.com/neuron 16", "google.com/tpu 4", "hugepages-2Mi 4194304", "nvidia.com/mig-1g.10gb 2", "rdma/hca_shared_devices_a 1", "pods 1"},
		},
		"an init container runs alone": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{"cpu": "3", "nvidia.com/gpu": "1"})}},
				Containers:     []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{"cpu": "2", "nvidia.com/gpu": "2"})}},
			},
			want: []string{"nvidia.com/gpu 2", "cpu 3000", "pods 1"},
		},
		"a sidecar runs beside": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{RestartPolicy: always, Resources: requesting(map[corev1.ResourceName]string{"cpu": "1", "nvidia.com/gpu": "1"})},
					{Resources: requesting(map[corev1.ResourceName]string{"cpu": "4"})},
				},
				Containers: []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{"cpu": "2", "nvidia.com/gpu": "2"})}},
			},
			want: []string{"nvidia.com/gpu 3", "cpu 5000", "pods 1"},
		},
		"overhead of the runtime class": {
			spec: corev1.PodSpec{
				Containers: []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{"memory": "1Gi"})}},
				Overhead:   corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("1Gi")},
			},
			want: []string{"cpu 250", "memory 2147483648", "pods 1"},
		},
		"nothing": {spec: corev1.PodSpec{Containers: []corev1.Container{{}}}, want: []string{"pods 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil, nil, stage.Nodes(1, 8)...)
			logger, _ := ktesting.NewTestContext(t)
			pod := stage.Pod(0, 0).Obj()
			pod.Spec.InitContainers, pod.Spec.Containers, pod.Spec.Overhead = tc.spec.InitContainers, tc.spec.Containers, tc.spec.Overhead
			d, err := s.cluster.NewDemand(logger, []*corev1.Pod{pod}, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			names := map[planner.Resource]string{}
			for _, w := range tc.want {
				name, _, _ := strings.Cut(w, " ")
				names[s.cluster.Resource(name)] = name
			}
			var got []string
			for _, a := range d.Classes[0].Requests {
				got = append(got, fmt.Sprintf("%s %d", names[a.Resource], a.Value))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("requests %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMembersThatNeedTheExactPath(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"devices":          {stage.Pod(0, 8).Obj(), false},
		"a resource claim": {stage.Pod(0, 8).PodResourceClaims(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To("gpu")}).Obj(), true},
		"a host port":      {stage.Pod(0, 8).HostPort(80).Obj(), false}, // counted
		"a preferred node": {preferring(stage.Pod(0, 8), "disk", "fast").Obj(), false},
	} {
		s := newScene(t, nil, nil, stage.Nodes(1, 8)...)
		logger, _ := ktesting.NewTestContext(t)
		d, err := s.cluster.NewDemand(logger, []*corev1.Pod{tc.pod}, 1, nil)
		if err != nil || d.exact != tc.want {
			t.Errorf("%s: exact %v, error %v, want %v", name, d.exact, err, tc.want)
		}
	}
}

// preferring makes a pod prefer nodes with a label.
func preferring(p *st.PodWrapper, key, value string) *st.PodWrapper {
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 10, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}},
	}}}}
	return p
}

func preferNoSchedule(key string) []corev1.Taint {
	return []corev1.Taint{{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}}
}

// Preferences decide between nodes that are equal otherwise, and nothing else.
func TestPreferencesBreakTies(t *testing.T) {
	likes := func(p *st.PodWrapper) *st.PodWrapper { return preferring(p, "disk", "fast") }
	for name, tc := range map[string]struct {
		nodes  []*corev1.Node
		change func(*st.PodWrapper) *st.PodWrapper
		want   []string
	}{
		"a preferred node": {
			nodes:  []*corev1.Node{stage.Node("n0", 8).Obj(), stage.Node("n1", 8).Label("disk", "fast").Obj(), stage.Node("n2", 8).Obj()},
			change: likes, want: []string{"n1"},
		},
		"a taint that asks to stay away": {
			nodes: []*corev1.Node{stage.Node("n0", 8).Taints(preferNoSchedule("a")).Obj(), stage.Node("n1", 8).Obj()},
			want:  []string{"n1"},
		},
		"one that is tolerated": {
			nodes:  []*corev1.Node{stage.Node("n0", 8).Taints(preferNoSchedule("a")).Obj(), stage.Node("n1", 8).Obj()},
			change: func(p *st.PodWrapper) *st.PodWrapper { return p.Toleration("a") }, want: []string{"n0"},
		},
		"a taint outweighs an affinity, as in kube-scheduler": {
			nodes:  []*corev1.Node{stage.Node("n0", 8).Label("disk", "fast").Taints(preferNoSchedule("a")).Obj(), stage.Node("n1", 8).Obj()},
			change: likes, want: []string{"n1"},
		},
		"room comes first": {
			nodes:  []*corev1.Node{stage.Node("n0", 8).Obj(), stage.Node("n1", 4).Label("disk", "fast").Obj()},
			change: likes, want: []string{"n0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil, nil, tc.nodes...)
			got, refused := s.plan(1, stage.Pods(1, 8, tc.change)...)
			if refused != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%v (%v), want %v", got, refused, tc.want)
			}
		})
	}
}

// A score is looked up again only when its node changed, and gone when nothing is liked or disliked any more.
func TestScoresFollowTheNodes(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	cache := newEligibilityCache()
	pod := stage.Pod(0, 1).Obj()
	nodes := stage.Nodes(3, 8)
	key := requirementsOf(pod).key()
	if e := cache.forPod(logger, pod, key, nodes); e.score() != nil {
		t.Errorf("scores %v of nodes that are all the same", e.score())
	}
	nodes[1] = stage.Node("n1", 8).Taints(append(preferNoSchedule("a"), preferNoSchedule("b")...)).Obj()
	if e := cache.forPod(logger, pod, key, nodes); !slices.Equal(e.score(), []int32{0, -600, 0}) {
		t.Errorf("scores %v, want a node with two taints at -600", e.score())
	}
	nodes[1] = stage.Node("n1", 8).Obj()
	if e := cache.forPod(logger, pod, key, nodes); e.score() != nil {
		t.Errorf("scores %v after the taints are gone", e.score())
	}
}

// arrangement is what a gang of one set asks, on its PodGroup and on the given pods.
func arrangement(t *testing.T, gang map[string]string, minMember int, pods ...*corev1.Pod) *podgroup.Arrangement {
	t.Helper()
	var members []podgroup.Member
	for _, pod := range pods {
		members = append(members, podgroup.MemberOf(pod))
	}
	a, err := podgroup.Arrange(gang, minMember, members)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestConstrain(t *testing.T) {
	levels := []string{"zone", "rack"}
	s := newScene(t, levels, nil, stage.Nodes(4, 8)...)
	logger, _ := ktesting.NewTestContext(t)
	pods := stage.Pods(6, 8, func(p *st.PodWrapper) *st.PodWrapper {
		return p.Annotation(podgroup.SliceRequiredTopologyAnnotation, "kubernetes.io/hostname").Annotation(podgroup.SliceSizeAnnotation, "2").
			Annotation(podgroup.PreferredTopologyAnnotation, "rack")
	})
	d, err := s.cluster.NewDemand(logger, pods[2:], 4, []Placed{{UID: stage.UID(1), Node: "n3"}, {UID: stage.UID(0), Node: "gone"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cluster.Constrain(d, arrangement(t, map[string]string{podgroup.RequiredTopologyAnnotation: "zone"}, 6, pods...)); err != nil {
		t.Fatal(err)
	}
	if d.Required != 1 || d.Preferred != planner.WholeCluster {
		t.Errorf("gang: required %d, preferred %d", d.Required, d.Preferred)
	}
	if want := (planner.Set{Preferred: 2, SliceSize: 2, SliceLevel: s.cluster.NodeLevel()}); len(d.Sets) != 1 || d.Sets[0] != want {
		t.Errorf("sets %+v, want %+v", d.Sets, want)
	}
	var slicesOf []int
	for _, m := range d.Members {
		slicesOf = append(slicesOf, m.Slice)
	}
	if !slices.Equal(slicesOf, []int{1, 1, 2, 2}) {
		t.Errorf("slices of the members %v", slicesOf)
	}
	n3, _ := s.cluster.Node("n3")
	if want := []planner.PlacedMember{{Node: n3}}; !slices.Equal(d.Demand.Placed, want) {
		t.Errorf("placed %v, want %v", d.Demand.Placed, want)
	}
}

func TestConstrainNamesWhatIsWrong(t *testing.T) {
	const required, preferred = podgroup.RequiredTopologyAnnotation, podgroup.PreferredTopologyAnnotation
	sliced := map[string]string{podgroup.SliceRequiredTopologyAnnotation: "zone", podgroup.SliceSizeAnnotation: "2"}
	for name, tc := range map[string]struct {
		gang, pod map[string]string
		words     []string
	}{
		"a level of the gang":  {gang: map[string]string{required: "room"}, words: []string{required, "the PodGroup", `"room" is not a topology level`, "zone, rack, kubernetes.io/hostname"}},
		"a level of a pod":     {pod: map[string]string{preferred: "room"}, words: []string{preferred, `pod "m-0"`, `"room" is not a topology level`}},
		"a level of slices":    {pod: map[string]string{podgroup.SliceRequiredTopologyAnnotation: "room", podgroup.SliceSizeAnnotation: "2"}, words: []string{podgroup.SliceRequiredTopologyAnnotation, `"room"`}},
		"preferred outside":    {gang: map[string]string{required: "rack", preferred: "zone"}, words: []string{preferred, `level "zone" is not inside level rack, which annotation ` + required}},
		"slices outside":       {gang: map[string]string{required: "rack"}, pod: sliced, words: []string{podgroup.SliceRequiredTopologyAnnotation, `pod "m-0"`, `level "zone" is not inside level rack`}},
		"the gang's slices":    {gang: map[string]string{required: "rack", podgroup.SliceRequiredTopologyAnnotation: "zone", podgroup.SliceSizeAnnotation: "2"}, words: []string{"the PodGroup", `"zone" is not inside level rack`}},
		"slices outside a set": {pod: map[string]string{required: "rack", podgroup.SliceRequiredTopologyAnnotation: "zone", podgroup.SliceSizeAnnotation: "2"}, words: []string{`pod "m-0"`, `"zone" is not inside level rack`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, []string{"zone", "rack"}, nil, stage.Nodes(2, 8)...)
			logger, _ := ktesting.NewTestContext(t)
			pods := stage.Pods(2, 8, nil)
			for _, p := range pods {
				p.Annotations = tc.pod
			}
			d, err := s.cluster.NewDemand(logger, pods, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = s.cluster.Constrain(d, arrangement(t, tc.gang, 2, pods...))
			if !errors.As(err, new(*podgroup.TopologyError)) {
				t.Fatalf("error %v", err)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not contain %q", err, word)
				}
			}
		})
	}
}
