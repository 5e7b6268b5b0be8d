package controlplane

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	began := time.Now()
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	return c
}

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func addNodes(t *testing.T, c *Cluster, shape NodeShape) []string {
	t.Helper()
	names, err := c.AddNodes(t.Context(), shape)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitNodesReady(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	return names
}

func template(annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name:  "trainer",
				Image: "trainer",
				Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{GPUResource: resource.MustParse("8")},
				},
			}},
		},
	}
}

func job(name string, pods int32, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: batchv1.JobSpec{
			Parallelism:    &pods,
			Completions:    &pods,
			CompletionMode: ptr.To(batchv1.IndexedCompletion),
			BackoffLimit:   ptr.To[int32](0),
			Template:       template(annotations),
		},
	}
}

// bind binds a pod by hand, for tests that need no scheduler.
func bind(t *testing.T, c *Cluster, pod, node string) {
	t.Helper()
	if err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, c *Cluster, name string, annotations map[string]string) {
	t.Helper()
	spec := template(annotations)
	spec.Name = name
	if _, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.Pod{ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func phase(t *testing.T, c *Cluster, pod string) corev1.PodPhase {
	t.Helper()
	got, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Phase
}

func waitPhase(t *testing.T, c *Cluster, pod string, want corev1.PodPhase) {
	t.Helper()
	eventually(t, pod+" to be "+string(want), func(context.Context) (bool, error) { return phase(t, c, pod) == want, nil })
}

// TestCluster shares one cluster among the tests that need no special configuration.
func TestCluster(t *testing.T) {
	c := start(t, Config{})
	scheduler, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	levels, err := ParseTopology("zone=2,rack=4")
	if err != nil {
		t.Fatal(err)
	}
	names := addNodes(t, c, NodeShape{Count: 8, GPUs: 8, Topology: levels, Labels: map[string]string{"tier": "a"}})

	t.Run("nodes", func(t *testing.T) {
		node, err := c.Client().CoreV1().Nodes().Get(t.Context(), names[5], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for label, want := range map[string]string{
			corev1.LabelHostname: "gpu-5", corev1.LabelTopologyZone: "zone-1", "topology.muster.dev/rack": "rack-2", "tier": "a",
		} {
			if got := node.Labels[label]; got != want {
				t.Errorf("label %s is %q, want %q", label, got, want)
			}
		}
		for name, want := range map[corev1.ResourceName]string{GPUResource: "8", corev1.ResourceCPU: "192", corev1.ResourceMemory: "2Ti", corev1.ResourcePods: "110"} {
			if got := node.Status.Allocatable[name]; got.Cmp(resource.MustParse(want)) != 0 {
				t.Errorf("%s is %s, want %s", name, got.String(), want)
			}
		}
	})

	t.Run("a job of 8 pods completes", func(t *testing.T) {
		began := time.Now()
		if _, err := c.Client().BatchV1().Jobs(metav1.NamespaceDefault).Create(t.Context(),
			job("eight", 8, map[string]string{RunSecondsAnnotation: "0"}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the job to complete", func(ctx context.Context) (bool, error) {
			got, err := c.Client().BatchV1().Jobs(metav1.NamespaceDefault).Get(ctx, "eight", metav1.GetOptions{})
			return err == nil && got.Status.Succeeded == 8, err
		})
		t.Logf("completed in %s", time.Since(began).Round(time.Millisecond))
	})

	t.Run("a JobSet completes", func(t *testing.T) {
		testJobSetCompletes(t, c)
	})

	t.Run("JobSet's webhook rejects", func(t *testing.T) {
		set := jobSet("bad")
		set.Spec.SuccessPolicy = &jobsetapi.SuccessPolicy{Operator: jobsetapi.OperatorAll, TargetReplicatedJobs: []string{"nobody"}}
		err := jobSetClient(t, c).Create(t.Context(), set)
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("error %v, want a refusal that names the replicated job", err)
		}
	})

	t.Run("a stopped scheduler binds nothing, the next one does", func(t *testing.T) {
		scheduler.Stop()
		createPod(t, c, "unbound", nil)
		createPod(t, c, "by-hand", nil)
		bind(t, c, "by-hand", names[7])
		waitPhase(t, c, "by-hand", corev1.PodRunning)
		if got := phase(t, c, "unbound"); got != corev1.PodPending {
			t.Errorf("unbound is %s with no scheduler", got)
		}
		again, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Stop()
		waitPhase(t, c, "unbound", corev1.PodRunning)
	})

	t.Run("a scheduler that cannot start says why and leaves the cluster alone", func(t *testing.T) {
		_, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{Configuration: []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallellism: 3
`)})
		if err == nil || !strings.Contains(err.Error(), "parallellism") {
			t.Errorf("error %v, want one that names the unknown field", err)
		}
		if _, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{Args: []string{"--no-such-flag"}}); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
			t.Errorf("error %v, want one that names the unknown flag", err)
		}
		again, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		again.Stop()
	})

	t.Run("pods follow their annotations", func(t *testing.T) {
		testPodAnnotations(t, c, names[6])
	})

	t.Run("a removed node takes its pods with it", func(t *testing.T) {
		createPod(t, c, "orphan", nil)
		bind(t, c, "orphan", names[0])
		waitPhase(t, c, "orphan", corev1.PodRunning)
		if err := c.RemoveNode(t.Context(), names[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "orphan", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("error %v, want not found", err)
		}
		if added := addNodes(t, c, NodeShape{Count: 1}); added[0] != "gpu-8" {
			t.Errorf("added %s, want a new name: gpu-8", added[0])
		}
	})

	t.Run("a service account has its own rights only", func(t *testing.T) {
		testServiceAccount(t, c)
	})

	t.Run("a second cluster in the process is refused", func(t *testing.T) {
		if _, err := Start(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "another cluster") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("no component failed", func(t *testing.T) {
		select {
		case err := <-c.Failed():
			t.Error(err)
		default:
		}
	})

	t.Run("stop frees everything", func(t *testing.T) {
		host, err := url.Parse(c.REST().Host)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(c.Kubeconfig())
		began := time.Now()
		c.Stop()
		t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the temporary directory is still there: %v", err)
		}
		listener, err := net.Listen("tcp", host.Host)
		if err != nil {
			t.Errorf("the API server's port is still taken: %v", err)
		} else {
			_ = listener.Close()
		}
		c.Stop() // harmless
	})
}

func jobSet(name string) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{
			Name:     "node",
			Replicas: 2,
			Template: batchv1.JobTemplateSpec{Spec: job("", 2, map[string]string{RunSecondsAnnotation: "0"}).Spec},
		}}},
	}
}

func jobSetClient(t *testing.T, c *Cluster) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := jobsetapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(c.REST(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func testJobSetCompletes(t *testing.T, c *Cluster) {
	cl := jobSetClient(t, c)
	set := jobSet("set")
	if err := cl.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the JobSet to complete", func(ctx context.Context) (bool, error) {
		if err := cl.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return false, err
		}
		return set.Status.TerminalState == string(jobsetapi.JobSetCompleted), nil
	})
	pods, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: jobsetapi.JobSetNameKey + "=set"})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 4 {
		t.Errorf("%d pods, want 4", len(pods.Items))
	}
}

func testPodAnnotations(t *testing.T, c *Cluster, node string) {
	createPod(t, c, "ends", map[string]string{RunSecondsAnnotation: "0.5"})
	createPod(t, c, "fails", map[string]string{RunSecondsAnnotation: "0", ExitCodeAnnotation: "3"})
	createPod(t, c, "slow", map[string]string{ReadySecondsAnnotation: "3600"})
	createPod(t, c, "nonsense", map[string]string{RunSecondsAnnotation: "soon"})
	createPod(t, c, "later", nil)
	for _, name := range []string{"ends", "fails", "slow", "nonsense", "later"} {
		bind(t, c, name, node)
	}
	waitPhase(t, c, "ends", corev1.PodSucceeded)
	waitPhase(t, c, "fails", corev1.PodFailed)
	waitPhase(t, c, "later", corev1.PodRunning)
	waitPhase(t, c, "nonsense", corev1.PodRunning)
	if got := phase(t, c, "slow"); got != corev1.PodPending {
		t.Errorf("slow is %s", got)
	}
	pods := c.Client().CoreV1().Pods(metav1.NamespaceDefault)

	ended, err := pods.Get(t.Context(), "ends", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	terminated := ended.Status.ContainerStatuses[0].State.Terminated
	if terminated == nil || terminated.FinishedAt.Time.Before(terminated.StartedAt.Time) {
		t.Errorf("terminated state %+v", terminated)
	}
	for _, condition := range ended.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status != corev1.ConditionFalse {
			t.Error("a pod that ended is still ready")
		}
	}
	failed, err := pods.Get(t.Context(), "fails", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := failed.Status.ContainerStatuses[0].State.Terminated; got == nil || got.ExitCode != 3 {
		t.Errorf("terminated state %+v, want exit code 3", got)
	}

	later, err := pods.Get(t.Context(), "later", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&later.ObjectMeta, RunSecondsAnnotation, "0")
	if _, err := pods.Update(t.Context(), later, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPhase(t, c, "later", corev1.PodSucceeded)

	if err := pods.Delete(t.Context(), "nonsense", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deleted pod to vanish", func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, "nonsense", metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignore(err, apierrors.IsNotFound)
	})
}

func testServiceAccount(t *testing.T, c *Cluster) {
	meta := metav1.ObjectMeta{Name: "reader", Namespace: metav1.NamespaceDefault}
	if _, err := c.Client().CoreV1().ServiceAccounts(meta.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().RbacV1().Roles(meta.Namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().RbacV1().RoleBindings(meta.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := c.ServiceAccountREST(t.Context(), meta.Namespace, meta.Name)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the granted verb", func(ctx context.Context) (bool, error) {
		_, err := reader.CoreV1().Pods(meta.Namespace).List(ctx, metav1.ListOptions{})
		return err == nil, ignore(err, apierrors.IsForbidden)
	})
	if _, err := reader.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want forbidden", err)
	}
}

// TestDataDirSurvives also is the second and third cluster of this process.
func TestDataDirSurvives(t *testing.T) {
	dir := t.TempDir()
	config := Config{DataDir: dir, DisableJobSet: true}
	first := start(t, config)
	old := first.REST()
	if _, err := first.Client().CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account, err := first.ServiceAccountREST(t.Context(), metav1.NamespaceDefault, "default")
	if err != nil {
		t.Fatal(err)
	}
	names := addNodes(t, first, NodeShape{Count: 1, GPUs: 8})
	createPod(t, first, "kept", nil)
	bind(t, first, "kept", names[0])
	waitPhase(t, first, "kept", corev1.PodRunning)
	first.Stop()
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		t.Fatalf("a given data directory must be kept: %v", err)
	}

	second := start(t, config)
	client, err := kubernetes.NewForConfig(old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the first cluster's kubeconfig no longer works: %v", err)
	}
	withToken, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withToken.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want forbidden: the old token must still authenticate", err)
	}
	if err := second.WaitNodesReady(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	if got := phase(t, second, "kept"); got != corev1.PodRunning {
		t.Errorf("the pod is %s after the restart", got)
	}
	// Its node is still simulated.
	pods := second.Client().CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, RunSecondsAnnotation, "0")
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPhase(t, second, "kept", corev1.PodSucceeded)
}

func TestNativeGangsAreServed(t *testing.T) {
	groups := func(c *Cluster) error {
		_, err := c.Client().SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err
	}
	minimal := Config{DisableJobSet: true, Controllers: []string{serviceAccountController}}
	config := minimal
	config.FeatureGates = map[string]bool{"GenericWorkload": true}
	config.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
	c := start(t, config)
	if err := groups(c); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	// The gate must be off again, or the next cluster of the process would fail to schedule.
	if next := start(t, minimal); !apierrors.IsNotFound(groups(next)) {
		t.Error("the next cluster serves native gangs too")
	}
}

func TestStartFailsCleanly(t *testing.T) {
	t.Run("unknown feature gate", func(t *testing.T) {
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		_, err := Start(t.Context(), Config{FeatureGates: map[string]bool{"NoSuchGate": true}})
		if err == nil || !strings.Contains(err.Error(), "featureGates") || !strings.Contains(err.Error(), "NoSuchGate") {
			t.Errorf("error %v, want one that names the field and the gate", err)
		}
		left, err := os.ReadDir(temporary)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Start(ctx, Config{Progress: func(step string) {
			if strings.Contains(step, "kube-apiserver") {
				cancel()
			}
		}})
		if err == nil {
			t.Error("started although cancelled")
		}
	})
	t.Run("data directory in use", func(t *testing.T) {
		dir := t.TempDir()
		holder := &Cluster{config: Config{DataDir: dir}}
		if err := holder.openDir(); err != nil {
			t.Fatal(err)
		}
		defer holder.Stop()
		if _, err := Start(t.Context(), Config{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error %v", err)
		}
	})
}

func TestNodeShapeErrors(t *testing.T) {
	rack := []Level{{Label: "topology.muster.dev/rack", Prefix: "rack", Domains: 4}}
	for name, test := range map[string]struct {
		shape NodeShape
		err   string
	}{
		"no nodes":             {shape: NodeShape{}, err: "count"},
		"negative GPUs":        {shape: NodeShape{Count: 1, GPUs: -1}, err: "gpus"},
		"negative pods":        {shape: NodeShape{Count: 1, Pods: -1}, err: "pods"},
		"bad CPU":              {shape: NodeShape{Count: 1, CPU: "many"}, err: `cpu: "many"`},
		"bad memory":           {shape: NodeShape{Count: 1, Memory: "2 TB"}, err: `memory: "2 TB"`},
		"more racks than node": {shape: NodeShape{Count: 3, Topology: rack}, err: "4 domains are more than the 3 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			// Refused before the API server is asked, so the cluster may be empty.
			if _, err := (&Cluster{}).AddNodes(t.Context(), test.shape); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
}
