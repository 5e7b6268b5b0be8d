package gangs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// apiServer has the objects, and serves Kubernetes' own groups only with native.
func apiServer(t *testing.T, native bool, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1beta1.AddToScheme, v1alpha1.AddToScheme, trainer.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	unknown := func(o runtime.Object) error {
		switch o.(type) {
		case *schedulingv1beta1.PodGroup, *schedulingv1beta1.PodGroupList:
			if !native {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: schedulingv1beta1.GroupName, Kind: "PodGroup"}}
			}
		}
		return nil
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				return errors.Join(unknown(o), c.Get(ctx, key, o, opts...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := unknown(list); err != nil {
					return err
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
}

func object(name string, made time.Duration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), CreationTimestamp: before(made)}
}

func group(name string, made time.Duration, conditions ...metav1.Condition) *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{ObjectMeta: object(name, made)}
	g.Spec.MinMember, g.Status.Phase, g.Status.Conditions = 4, upstream.PodGroupPending, conditions
	return g
}

func native(name string, made time.Duration, priority int32, conditions ...metav1.Condition) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: object(name, made)}
	g.Spec.Priority, g.Spec.SchedulingPolicy.Gang, g.Status.Conditions = &priority, &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}, conditions
	return g
}

func condition(t string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: before(2 * time.Minute)}
}

func pod(name, group string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: object(name, time.Hour)}
	if group != "" {
		p.Labels = map[string]string{v1alpha1.GroupLabel: group}
	}
	p.Spec.Priority = ptr.To[int32](7)
	p.Status.Phase = corev1.PodPending
	for _, do := range change {
		do(p)
	}
	return p
}

func inNative(group string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
}

func runs(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n0", corev1.PodRunning }

func told(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message, LastTransitionTime: before(time.Minute),
		}}
	}
}

const why = "gang needs 4 members (with nvidia.com/gpu 8), room for 2; short of nvidia.com/gpu: needed 32, free 22 of 32"

func TestExplain(t *testing.T) {
	refused := condition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "Unschedulable", why)
	crashes := func(p *corev1.Pod) {
		runs(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
		}}}
	}
	for name, test := range map[string]struct {
		ask     string
		objects []client.Object
		want    string
	}{
		"a gang that is refused": {
			"llm", []client.Object{
				group("llm", 3*time.Minute, refused,
					condition(v1alpha1.ConditionReserved, metav1.ConditionTrue, "Reserved", "rack r1 until 12:30"),
					condition(v1alpha1.ConditionPreempting, metav1.ConditionFalse, "GaveUp", "not all pods ended in time")),
				pod("llm-0", "llm"), pod("llm-1", "llm"), pod("other", "else"),
			},
			`podgroup team-a/llm: Pending, members 2 waiting of 4 needed, priority 7, made 3m ago
Unschedulable for 2m (Scheduled): ` + why + `
Reserved for 2m (Reserved): rack r1 until 12:30
`,
		},
		"one that has not met": {
			"podgroup/llm", []client.Object{
				group("llm", 3*time.Minute, condition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled", "4 of 4 members scheduled"),
					condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Meeting", "1 of 4 members ready")),
				pod("llm-0", "llm", runs), pod("llm-1", "llm", crashes),
			},
			`podgroup team-a/llm: Pending, members 2 running of 4 needed, priority 7, made 3m ago
Meeting for 2m (Ready): 1 of 4 members ready
pod llm-1 on n0: CrashLoopBackOff in container "node"
`,
		},
		"one whose CRD has no conditions": {
			"pod/llm-1", []client.Object{group("llm", 3*time.Minute), pod("llm-10", "llm", told("later")), pod("llm-2", "llm", told(why)), pod("llm-1", "llm", runs)},
			`podgroup team-a/llm: Pending, members 1 running, 2 waiting of 4 needed, priority 7, made 3m ago
Unschedulable for 60s (PodScheduled): ` + why + `
`,
		},
		"one without members": {
			"PodGroup.scheduling.x-k8s.io/llm", []client.Object{group("llm", 3*time.Minute)},
			"podgroup team-a/llm: Pending, no members of 4 needed, priority 0, made 3m ago\n",
		},
		"a native group": {
			"llm", []client.Object{
				native("llm", time.Hour, 9, condition(schedulingv1beta1.PodGroupInitiallyScheduled, metav1.ConditionFalse, "Unschedulable", why)),
				pod("m-0", "", inNative("llm")), pod("m-1", "", inNative("else")),
			},
			`podgroup.scheduling.k8s.io team-a/llm, members 1 waiting of 2 needed, priority 9, made 60m ago
Unschedulable for 2m (PodGroupInitiallyScheduled): ` + why + `
`,
		},
		"a member of a native group": {
			"pod/m-0", []client.Object{native("llm", time.Hour, 9), pod("m-0", "", inNative("llm"), told(why))},
			`podgroup.scheduling.k8s.io team-a/llm, members 1 waiting of 2 needed, priority 9, made 60m ago
Unschedulable for 60s (PodScheduled): ` + why + `
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Find(t.Context(), apiServer(t, true, test.objects...), "team-a", test.ask)
			if err != nil || len(found) != 1 {
				t.Fatalf("%d found, %v", len(found), err)
			}
			var out strings.Builder
			if err := found[0].Explain(&out, now); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want {
				t.Errorf("told\n%s, want\n%s", out.String(), test.want)
			}
		})
	}
}

func TestExplainATrainJob(t *testing.T) {
	job := &trainer.TrainJob{ObjectMeta: object("llm", time.Hour)}
	job.Status.TrainerStatus = &trainer.TrainerStatus{
		ProgressPercentage: ptr.To[int32](40), EstimatedRemainingSeconds: ptr.To[int32](5400), LastUpdatedTime: before(10 * time.Second),
		Metrics: []trainer.Metric{{Name: "loss", Value: "0.31"}},
	}
	failed := &trainer.TrainJob{ObjectMeta: object("bad", time.Hour)}
	failed.Status.Conditions = []metav1.Condition{
		condition(trainer.TrainJobSuspended, metav1.ConditionFalse, "Resumed", "TrainJob is resumed"),
		condition(trainer.TrainJobFailed, metav1.ConditionTrue, "InvalidSpec", "spec.trainer.numNodes: must be above 0"),
	}
	mine := []metav1.OwnerReference{*metav1.NewControllerRef(job, trainer.GroupVersion.WithKind(trainer.TrainJobKind))}
	prepare, train, other := group("llm-initializers", time.Hour), native("llm", time.Hour, 0), group("other", time.Hour)
	prepare.OwnerReferences, train.OwnerReferences = mine, mine
	kube := apiServer(t, true, job, failed, &trainer.TrainJob{ObjectMeta: object("plain", time.Hour)}, prepare, train, other,
		pod("a", "llm-initializers"), pod("b", "", inNative("llm")))
	for ask, want := range map[string]string{
		"trainjob/llm": `trainjob team-a/llm, made 60m ago
reported 10s ago: 40 % done, 90m left, loss 0.31
podgroup team-a/llm-initializers: Pending, members 1 waiting of 4 needed, priority 7, made 60m ago
podgroup.scheduling.k8s.io team-a/llm, members 1 waiting of 2 needed, priority 0, made 60m ago
`,
		"trainjob/bad": `trainjob team-a/bad, made 60m ago
InvalidSpec for 2m (Failed): spec.trainer.numNodes: must be above 0
`,
		"trainjobs/plain": `trainjob team-a/plain, made 60m ago
it has no gang: its runtime has no podGroupPolicy, or its controller has not seen it yet
`,
	} {
		found, err := Find(t.Context(), kube, "team-a", ask)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, f := range found {
			if err := f.Explain(&out, now); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("told\n%s, want\n%s", out.String(), want)
		}
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	kube := apiServer(t, false, pod("alone", ""), pod("early", "late"))
	for ask, want := range map[string]string{
		"llm":                             `"llm" not found`,
		"deployment/llm":                  `"deployment/llm": there are podgroup/NAME, pod/NAME and trainjob/NAME`,
		"podgroup.scheduling.k8s.io/llm":  "no matches for kind",
		"pod/none":                        `"none" not found`,
		"pod/alone":                       "pod team-a/alone is a member of no gang: it has no label scheduling.x-k8s.io/pod-group",
		"pod/early":                       "pod team-a/early waits for PodGroup team-a/late, which does not exist",
		"trainjob/none":                   `"none" not found`,
		"podgroups.scheduling.x-k8s.io/x": "there are podgroup/NAME",
	} {
		if found, err := Find(t.Context(), kube, "team-a", ask); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", ask, found, err, want)
		}
	}
}

func TestQueue(t *testing.T) {
	low := func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1) }
	elsewhere := group("far", time.Minute, condition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "WaitingForMembers", "0 of 4 members created"))
	elsewhere.Namespace = "team-b"
	done := group("done", time.Hour)
	done.Status.Phase = upstream.PodGroupFinished
	objects := []client.Object{
		group("young", time.Minute, condition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "Unschedulable", why)),
		group("old", time.Hour, condition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "Unschedulable", why)),
		group("low", 2*time.Hour), elsewhere, done,
		group("runs", time.Hour, condition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled", "4 of 4 members scheduled")),
		native("first", time.Second, 9, condition(schedulingv1beta1.PodGroupInitiallyScheduled, metav1.ConditionFalse, "Unschedulable", "no room")),
		native("placed", time.Hour, 9, condition(schedulingv1beta1.PodGroupInitiallyScheduled, metav1.ConditionTrue, "Scheduled", "")),
		pod("y-0", "young"), pod("y-1", "young"), pod("o-0", "old"), pod("o-1", "old", runs), pod("l-0", "low", low), pod("f-0", "", inNative("first")),
	}
	kube := apiServer(t, true, objects...)
	for _, test := range []struct {
		namespace string
		all       bool
		want      string
	}{
		{"", false, `
NAMESPACE NAME PRIORITY WAITING NEEDED AGE REASON MESSAGE
team-a first 9 1 2 1s Unschedulable no room
team-a old 7 1 4 60m Unschedulable gang needs 4 members (with nvidia.com/gpu 8), room for 2
team-a young 7 2 4 60s Unschedulable gang needs 4 members (with nvidia.com/gpu 8), room for 2
team-a low 1 1 4 120m
team-b far 0 0 4 60s WaitingForMembers 0 of 4 members created
`},
		{"team-b", true, `
NAMESPACE NAME PRIORITY WAITING NEEDED AGE REASON MESSAGE
team-b far 0 0 4 60s WaitingForMembers 0 of 4 members created
`},
	} {
		waiting, err := Queue(t.Context(), kube, test.namespace)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := Table(&out, waiting, test.all, now); err != nil {
			t.Fatal(err)
		}
		got := "\n"
		for line := range strings.Lines(out.String()) {
			got += strings.Join(strings.Fields(line), " ") + "\n"
		}
		if got != test.want {
			t.Errorf("got%s\nwant%s", got, test.want)
		}
	}
	waiting, err := Queue(t.Context(), apiServer(t, false, objects...), "team-a")
	if err != nil || len(waiting) != 3 {
		t.Errorf("without Kubernetes' own groups: %v, %v", waiting, err)
	}
	var out strings.Builder
	if err := Table(&out, waiting, true, now); err != nil || !strings.Contains(out.String(), why+"\n") {
		t.Errorf("the message is cut: %s, %v", out.String(), err)
	}
}
