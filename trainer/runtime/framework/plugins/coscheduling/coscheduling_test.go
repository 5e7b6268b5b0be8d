package coscheduling

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func trainJob() *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
}

func job(name, ancestor string, pods int32, dependsOn ...string) jobsetv1alpha2.ReplicatedJob {
	j := jobsetv1alpha2.ReplicatedJob{Name: name}
	j.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
	j.Template.Spec.Parallelism = &pods
	j.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	for _, d := range dependsOn {
		j.DependsOn = append(j.DependsOn, jobsetv1alpha2.DependsOn{Name: d, Status: jobsetv1alpha2.DependencyComplete})
	}
	return j
}

func newInfo(t interface{ Fatal(...any) }, policy *v1alpha1.CoschedulingPodGroupPolicySource, jobs ...jobsetv1alpha2.ReplicatedJob) *runtime.Info {
	spec := &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: jobs}}}
	if policy != nil {
		spec.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{Coscheduling: policy}}
	}
	info, err := runtime.New(trainJob(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func build(t interface{ Fatal(...any) }, c *CoScheduling, info *runtime.Info) []*podgroup.PodGroup {
	objects, err := c.Build(context.Background(), info, trainJob())
	if err != nil {
		t.Fatal(err)
	}
	var groups []*podgroup.PodGroup
	for _, object := range objects {
		groups = append(groups, object.(*podgroup.PodGroup))
	}
	return groups
}

var policy = &v1alpha1.CoschedulingPodGroupPolicySource{}

func TestOneGangPerStartupPhase(t *testing.T) {
	cases := map[string]struct {
		jobs    []jobsetv1alpha2.ReplicatedJob
		inOrder bool
		want    []string // gang=members, by phase
	}{
		"one job":      {jobs: []jobsetv1alpha2.ReplicatedJob{job("node", "trainer", 4)}, want: []string{"llm=4"}},
		"no trainer":   {jobs: []jobsetv1alpha2.ReplicatedJob{job("a", "", 1), job("b", "", 2)}, want: []string{"llm=3"}},
		"independent":  {jobs: []jobsetv1alpha2.ReplicatedJob{job("data", "", 1), job("model", "", 1), job("node", "trainer", 100)}, want: []string{"llm=102"}},
		"initializers": {jobs: []jobsetv1alpha2.ReplicatedJob{job("data", "", 1), job("model", "", 1), job("node", "trainer", 4, "data", "model")}, want: []string{"llm-phase-0=2", "llm=4"}},
		"a chain":      {jobs: []jobsetv1alpha2.ReplicatedJob{job("a", "", 1), job("b", "", 2, "a"), job("node", "trainer", 3, "b")}, want: []string{"llm-phase-0=1", "llm-phase-1=2", "llm=3"}},
		"a launcher after its workers": {
			jobs: []jobsetv1alpha2.ReplicatedJob{job("node", "", 8), job("launcher", "trainer", 1, "node")}, want: []string{"llm-phase-0=8", "llm=1"},
		},
		"after the trainer":       {jobs: []jobsetv1alpha2.ReplicatedJob{job("node", "trainer", 4), job("eval", "", 1, "node")}, want: []string{"llm=4", "llm-phase-1=1"}},
		"in order":                {jobs: []jobsetv1alpha2.ReplicatedJob{job("a", "", 1), job("node", "trainer", 2), job("c", "", 3)}, inOrder: true, want: []string{"llm-phase-0=1", "llm=2", "llm-phase-2=3"}},
		"one dependency of two":   {jobs: []jobsetv1alpha2.ReplicatedJob{job("a", "", 1), job("b", "", 1), job("node", "trainer", 2, "a")}, want: []string{"llm-phase-0=2", "llm=2"}},
		"the longest path rules":  {jobs: []jobsetv1alpha2.ReplicatedJob{job("a", "", 1), job("b", "", 1, "a"), job("node", "trainer", 2, "a", "b")}, want: []string{"llm-phase-0=1", "llm-phase-1=1", "llm=2"}},
		"a job that is not there": {jobs: []jobsetv1alpha2.ReplicatedJob{job("node", "trainer", 2, "ghost")}, want: []string{"llm=2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info := newInfo(t, policy, tc.jobs...)
			if tc.inOrder {
				info.JobSet.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobsetv1alpha2.InOrder}
			}
			var got []string
			for _, group := range build(t, New(nil, nil, ""), info) {
				got = append(got, fmt.Sprintf("%s=%d", group.Name, group.Spec.MinMember))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("gangs (-want +got)\n%s", diff)
			}
		})
	}
}

// Whatever the dependencies: every pod is in exactly one gang, the gang that its label names; no gang holds
// two jobs of which one waits for the other; and the names differ.
func TestGangProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "jobs")
		trainer := rapid.IntRange(-1, n-1).Draw(t, "trainer")
		var jobs []jobsetv1alpha2.ReplicatedJob
		waits := map[[2]string]bool{}
		var pods int32
		for i := range n {
			name := fmt.Sprintf("j%d", i)
			var dependsOn []string
			for d := range i {
				earlier := fmt.Sprintf("j%d", d)
				if rapid.Bool().Draw(t, name+" after "+earlier) {
					dependsOn = append(dependsOn, earlier)
					waits[[2]string{name, earlier}] = true
					for e := range d {
						if waits[[2]string{earlier, fmt.Sprintf("j%d", e)}] {
							waits[[2]string{name, fmt.Sprintf("j%d", e)}] = true
						}
					}
				}
			}
			ancestor := ""
			if i == trainer {
				ancestor = "trainer"
			}
			count := rapid.Int32Range(1, 5).Draw(t, "pods")
			j := job(name, ancestor, count, dependsOn...)
			replicas := rapid.Int32Range(1, 3).Draw(t, "replicas")
			j.Replicas = replicas
			if i == trainer {
				replicas = 1
			}
			pods += count * replicas
			jobs = append(jobs, j)
		}
		c := New(nil, nil, "muster")
		info := newInfo(t, policy, jobs...)
		if err := c.EnforcePodGroupPolicy(info, trainJob()); err != nil {
			t.Fatal(err)
		}
		byGang := map[string][]string{}
		labelled := map[string]int32{}
		for _, podSet := range info.PodSets {
			gang := podSet.Job.Template.Spec.Template.Labels[podgroup.GroupLabel]
			for _, other := range byGang[gang] {
				if waits[[2]string{podSet.Job.Name, other}] || waits[[2]string{other, podSet.Job.Name}] {
					t.Fatalf("gang %s has %s and %s, one of which waits for the other", gang, podSet.Job.Name, other)
				}
			}
			byGang[gang] = append(byGang[gang], podSet.Job.Name)
			labelled[gang] += podSet.Replicas * podSet.Count
		}
		var members int32
		groups := build(t, c, info)
		if len(groups) != len(byGang) {
			t.Fatalf("%d PodGroups for %d labels", len(groups), len(byGang))
		}
		for _, group := range groups {
			if group.Spec.MinMember != labelled[group.Name] {
				t.Fatalf("PodGroup %s has %d members, labels say %d", group.Name, group.Spec.MinMember, labelled[group.Name])
			}
			members += group.Spec.MinMember
		}
		if members != pods {
			t.Fatalf("%d members, %d pods", members, pods)
		}
		named := slices.ContainsFunc(groups, func(g *podgroup.PodGroup) bool { return g.Name == "llm" })
		if !named {
			t.Fatal("no gang has the TrainJob's name")
		}
	})
}

func TestEnforcePodGroupPolicy(t *testing.T) {
	own := job("own", "", 1)
	own.Template.Spec.Template.Spec.SchedulerName = "mine"
	cases := map[string]struct {
		policy        *v1alpha1.CoschedulingPodGroupPolicySource
		schedulerName string
		label         string
		want          []string
	}{
		"configured":     {policy, "muster", "llm", []string{"muster", "mine"}},
		"not configured": {policy, "", "llm", []string{"", "mine"}},
		"no policy":      {nil, "muster", "", []string{"", "mine"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info := newInfo(t, tc.policy, job("node", "trainer", 1), own)
			c := New(nil, nil, tc.schedulerName)
			if err := c.EnforcePodGroupPolicy(info, trainJob()); err != nil {
				t.Fatal(err)
			}
			for i, want := range tc.want {
				template := info.PodSets[i].Job.Template.Spec.Template
				if template.Spec.SchedulerName != want || template.Labels[podgroup.GroupLabel] != tc.label {
					t.Errorf("job %d: scheduler %q, labels %v; want %q, %q", i, template.Spec.SchedulerName, template.Labels, want, tc.label)
				}
			}
			if groups := build(t, c, info); (len(groups) > 0) != (tc.policy != nil) {
				t.Errorf("%d PodGroups", len(groups))
			}
		})
	}
}

func TestMinResources(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	cases := map[string]struct {
		pods   int32
		change func(*corev1.PodSpec)
		want   corev1.ResourceList
	}{
		"nothing asked": {pods: 2, change: func(*corev1.PodSpec) {}, want: list()},
		"requests": {pods: 3, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: list("cpu", "2")}
		}, want: list("cpu", "1500m")},
		"limits alone": {pods: 4, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2", "nvidia.com/gpu", "8")}
		}, want: list("cpu", "4", "nvidia.com/gpu", "32")},
		"containers add up": {pods: 1, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Requests = list("cpu", "1")
			p.Containers = append(p.Containers, corev1.Container{Name: "b", Resources: corev1.ResourceRequirements{Requests: list("cpu", "2")}})
		}, want: list("cpu", "3")},
		"sidecars add, init containers are a maximum": {pods: 2, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Requests = list("cpu", "1", "memory", "1Gi")
			p.InitContainers = []corev1.Container{
				{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Limits: list("cpu", "500m", "memory", "1Gi")}},
				{Name: "init", Resources: corev1.ResourceRequirements{Requests: list("memory", "8Gi")}},
			}
		}, want: list("cpu", "3", "memory", "18Gi")},
		"runtime class": {pods: 2, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Requests = list("cpu", "1")
			p.RuntimeClassName = ptr.To("kata")
		}, want: list("cpu", "2500m")},
		"runtime class that is not there": {pods: 2, change: func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Requests = list("cpu", "1")
			p.RuntimeClassName = ptr.To("ghost")
		}, want: list("cpu", "2")},
		"pod level resources": {pods: 2, change: func(p *corev1.PodSpec) {
			p.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "4")}
			p.Containers[0].Resources.Requests = list("cpu", "1")
		}, want: list("cpu", "8")},
	}
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, nodev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(&nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Overhead: &nodev1.Overhead{PodFixed: list("cpu", "250m")},
	}).Build(), nil, "")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := job("node", "trainer", tc.pods)
			tc.change(&j.Template.Spec.Template.Spec)
			info := newInfo(t, policy, j)
			before := info.JobSet.DeepCopy()
			got := build(t, c, info)[0].Spec.MinResources
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("minResources (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(before, info.JobSet); diff != "" {
				t.Errorf("counting changed the JobSet (-before +after)\n%s", diff)
			}
		})
	}
}

func TestScheduleTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		set  *int32
		want int32
		errs int
	}{
		"unset":    {nil, 60, 0},
		"zero":     {ptr.To[int32](0), 0, 0},
		"set":      {ptr.To[int32](120), 120, 0},
		"negative": {ptr.To[int32](-1), -1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			info := newInfo(t, &v1alpha1.CoschedulingPodGroupPolicySource{ScheduleTimeoutSeconds: tc.set}, job("node", "trainer", 1))
			c := New(nil, nil, "")
			if errs := c.Validate(info, trainJob()); len(errs) != tc.errs {
				t.Errorf("errors = %v", errs)
			}
			if got := build(t, c, info)[0].Spec.ScheduleTimeoutSeconds; *got != tc.want {
				t.Errorf("timeout = %d, want %d", *got, tc.want)
			}
		})
	}
	if errs := New(nil, nil, "").Validate(newInfo(t, nil, job("node", "trainer", 1)), trainJob()); errs != nil {
		t.Errorf("errors without a policy: %v", errs)
	}
}

// An MPI job whose launcher is its only node has no workers, and so no gang of them.
func TestNoGangOfNobody(t *testing.T) {
	info := newInfo(t, &v1alpha1.CoschedulingPodGroupPolicySource{}, job("node", "", 1), job("launcher", v1alpha1.AncestorTrainer, 1, "node"))
	info.ByName("node").Count = 0
	groups := build(t, New(nil, nil, ""), info)
	if len(groups) != 1 || groups[0].Name != "llm" || groups[0].Spec.MinMember != 1 {
		t.Errorf("groups = %v", groups)
	}
}
