package gangplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/stage"
)

func TestOneForEachNodeIsCounted(t *testing.T) {
	port := func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(29500) }
	apart := func(p *st.PodWrapper) *st.PodWrapper {
		return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
	}
	onPort := st.MakePod().Namespace("ns").Name("server").UID("server").Node("n0").HostPort(29500).Obj()
	like := st.MakePod().Namespace("ns").Name("like").UID("like").Node("n0").Label("app", "train").Obj()
	for name, tc := range map[string]struct {
		pods    []*corev1.Pod
		nodes   int
		members []*corev1.Pod
		exact   bool
		want    []string
		refused string
	}{
		"a host port": {nodes: 2, members: stage.Pods(2, 1, port), want: []string{"n0", "n1"}},
		"a host port that is taken": {
			pods: []*corev1.Pod{onPort}, nodes: 3, members: stage.Pods(2, 1, port), want: []string{"n1", "n2"},
		},
		"a host port for which there are too few nodes": {
			pods: []*corev1.Pod{onPort}, nodes: 3, members: stage.Pods(3, 1, port),
			refused: "short of host port 29500/TCP: needed 3, free 2 of 3",
		},
		"a host port on an address of its own": {
			nodes: 2, exact: true, want: []string{"n0", "n1"},
			members: stage.Pods(2, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.ContainerPort([]corev1.ContainerPort{{HostPort: 29500, HostIP: "10.0.0.1"}})
			}),
		},
		"members that keep apart": {nodes: 3, members: stage.Pods(3, 1, apart), want: []string{"n0", "n1", "n2"}},
		"members that keep apart also from others": {
			pods: []*corev1.Pod{like}, nodes: 3, members: stage.Pods(2, 1, apart), want: []string{"n1", "n2"},
		},
		"members that keep apart and have too few nodes": {
			nodes: 2, members: stage.Pods(3, 1, apart), refused: "short of own node (anti-affinity): needed 3, free 2 of 2",
		},
		"two roles that keep apart from their like": {
			nodes: 2, want: []string{"n0", "n1", "n0", "n1"},
			members: stage.Pods(4, 1, nil),
		},
		"members that keep others apart": {
			nodes: 2, exact: true, want: []string{"n0", "n1"},
			members: []*corev1.Pod{
				stage.Pod(0, 1).PodAntiAffinityExists("worker", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj(),
				stage.Pod(1, 1).Label("worker", "").Obj(),
			},
		},
		"members that keep from pods of another kind": {
			pods: []*corev1.Pod{like}, nodes: 2, want: []string{"n1", "n1"},
			members: stage.Pods(2, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return apart(st.MakePod().Namespace("ns").Name(p.Pod.Name).UID(string(p.Pod.UID)))
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "two roles") {
				for i, p := range tc.members {
					role := "role-" + string(rune('a'+i/2))
					tc.members[i] = (&st.PodWrapper{Pod: *p}).Label(role, "").PodAntiAffinityExists(role, "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()
				}
			}
			s := newScene(t, nil, tc.pods, stage.Nodes(tc.nodes, 8)...)
			d, err := s.cluster.NewDemand(klog.Background(), tc.members, len(tc.members), nil)
			if err != nil || d.exact != tc.exact {
				t.Fatalf("exact: %v, want %v (%v)", d.exact, tc.exact, err)
			}
			got, e := s.plan(len(tc.members), tc.members...)
			if tc.refused != "" {
				if e == nil || !strings.Contains(e.String(), tc.refused) {
					t.Errorf("\n got %v %v\nwant %q", got, e, tc.refused)
				}
			} else if !slices.Equal(got, tc.want) {
				t.Errorf("got %v (%v), want %v", got, e, tc.want)
			}
		})
	}
}

// What one gang's members keep to themselves is no concern of another gang; their ports are.
func TestWhatOtherGangsHoldOfSingles(t *testing.T) {
	s := newScene(t, nil, nil, stage.Nodes(1, 8)...)
	members := stage.Pods(1, 1, func(p *st.PodWrapper) *st.PodWrapper {
		return p.HostPort(29500).PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
	})
	d, err := s.cluster.NewDemand(klog.Background(), members, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range s.cluster.singles.held(d.Classes[0].Requests) {
		names = append(names, s.cluster.ResourceName(a.Resource))
	}
	if want := []string{stage.GPU, "pods", "host port 29500/TCP"}; !slices.Equal(names, want) {
		t.Errorf("held: %v, want %v", names, want)
	}
}

func TestResourcesLeftToOthers(t *testing.T) {
	t.Run("ignored by NodeResourcesFit", func(t *testing.T) {
		s := &scene{t: t, cluster: NewCluster(nil)}
		s.fw, s.nodes = stage.NewFrameworkIgnoring(t, []string{"example.com/licence"}, []string{"group.example.com"}, stage.Nodes(1, 8)...)
		s.cluster.Use(s.fw)
		s.cluster.Sync(s.nodes)
		ask := func(name corev1.ResourceName) []*corev1.Pod {
			return stage.Pods(2, 1, func(p *st.PodWrapper) *st.PodWrapper { return p.Req(map[corev1.ResourceName]string{name: "1"}) })
		}
		for name, fits := range map[corev1.ResourceName]bool{"example.com/licence": true, "group.example.com/any": true, "example.com/other": false} {
			if got, e := s.plan(2, ask(name)...); (e == nil) != fits {
				t.Errorf("%s: %v, %v", name, got, e)
			}
		}
	})
	t.Run("provided by a device class", func(t *testing.T) {
		nodes := stage.Nodes(3, 8)
		objects := devices(1, nodes...)
		objects[0] = &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: deviceClass}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}
		s := newObjectScene(t, append([]runtime.Object{}, objects...), nil, nodes...)
		ask := func(n int) []*corev1.Pod {
			return stage.Pods(n, 0, func(p *st.PodWrapper) *st.PodWrapper {
				return p.Req(map[corev1.ResourceName]string{"example.com/gpu": "1"})
			})
		}
		for range 2 {
			if got, e := s.plan(3, ask(3)...); !slices.Equal(got, []string{"n0", "n1", "n2"}) {
				t.Errorf("%v, %v", got, e)
			}
			if got, e := s.plan(4, ask(4)...); e == nil || !strings.Contains(e.String(), "room for 3; of 3 nodes: 3 refused by DynamicResources") {
				t.Errorf("%v, %v", got, e)
			}
			s.untouched(0, 0)
		}
	})
}

func BenchmarkOneForEachNode(b *testing.B) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.SpreadConstraint(1, "kubernetes.io/hostname", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	for name, rule := range map[string]func(*st.PodWrapper) *st.PodWrapper{
		"host port": func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(29500) },
		"anti-affinity": func(p *st.PodWrapper) *st.PodWrapper {
			return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
		},
		"host port on an address": func(p *st.PodWrapper) *st.PodWrapper {
			return p.ContainerPort([]corev1.ContainerPort{{HostPort: 29500, HostIP: "10.0.0.1"}})
		},
		"spread": spread,
	} {
		b.Run(fmt.Sprintf("%s/512 members on 5000 nodes", name), func(b *testing.B) {
			klog.SetLogger(klog.NewKlogr())
			s := &scene{t: b, cluster: NewCluster(nil)}
			s.fw, s.nodes = stage.NewFramework(b, nil, stage.Nodes(5000, 8)...)
			s.cluster.Sync(s.nodes)
			members := stage.Pods(512, 1, rule)
			for b.Loop() {
				d, err := s.cluster.NewDemand(klog.Background(), members, len(members), nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, e, err := Plan(b.Context(), s.fw, s.cluster, d, nil); err != nil || e != nil {
					b.Fatal(e, err)
				}
			}
		})
	}
}
