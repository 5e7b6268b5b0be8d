package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// musterNamespace is where the manifests put Muster.
const musterNamespace = "muster-system"

var insecureClient = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// deployment is what a kustomization puts into the cluster.
type deployment struct {
	*scene
	objects []*unstructured.Unstructured
}

// deploy builds a kustomization and applies every object, in kustomize's order, as kubectl would. The changes
// are for what this machine has not.
func (s *scene) deploy(target string, changes ...func(*unstructured.Unstructured)) *deployment {
	s.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("../../manifests", target))
	s.must(err)
	d := &deployment{scene: s}
	for _, r := range built.Resources() {
		content, err := r.MarshalJSON()
		s.must(err)
		object := &unstructured.Unstructured{}
		s.must(object.UnmarshalJSON(content))
		for _, change := range changes {
			change(object)
		}
		d.objects = append(d.objects, object)
		if err := kube.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			s.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	s.Cleanup(d.remove)
	return d
}

// remove deletes what deploy made, except for what other tests use too.
func (d *deployment) remove() {
	ctx := context.Background()
	for _, object := range slices.Backward(d.objects) {
		if kind := object.GetKind(); kind == "CustomResourceDefinition" || kind == "Namespace" {
			continue
		}
		d.must(client.IgnoreNotFound(kube.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
	d.must(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(musterNamespace), client.GracePeriodSeconds(0)))
}

// find returns the one object of a kind, converted.
func (d *deployment) find(kind string, into any) {
	d.Helper()
	for _, object := range d.objects {
		if object.GetKind() == kind {
			data, err := yaml.Marshal(object.Object)
			d.must(err)
			d.must(yaml.UnmarshalStrict(data, into))
			return
		}
	}
	d.Fatalf("no %s is deployed", kind)
}

// start runs the deployed container's command line as the deployed service account. Only what a pod's
// surroundings provide is replaced: where the files are, the API server's address, and the ports.
// Whatever the API server denies fails the test.
func (d *deployment) start(replaced ...string) *process {
	d.Helper()
	deployed, configMap := &appsv1.Deployment{}, &corev1.ConfigMap{}
	d.find("Deployment", deployed)
	d.find("ConfigMap", configMap)

	denied := watchDenied(d.T)
	account, err := cluster.ServiceAccountREST(d.ctx, deployed.Namespace, deployed.Spec.Template.Spec.ServiceAccountName)
	d.must(err)
	kubeconfig, err := cluster.WriteKubeconfig("deployed.kubeconfig", denied.through(account))
	d.must(err)

	dir := d.TempDir()
	for name, content := range configMap.Data {
		config := map[string]any{}
		d.must(yaml.UnmarshalStrict([]byte(content), &config))
		d.must(unstructured.SetNestedField(config, kubeconfig, "clientConnection", "kubeconfig"))
		data, err := yaml.Marshal(config)
		d.must(err)
		d.must(os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	container := deployed.Spec.Template.Spec.Containers[0]
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.Replace(arg, container.VolumeMounts[0].MountPath, dir, 1))
	}
	d.Cleanup(func() {
		for _, request := range denied.all() {
			d.Errorf("denied: %s", request)
		}
	})
	p := startProcess(d.T, kubeconfig, append(args, replaced...)...)
	// The deployed probes, asked as a kubelet does: without credentials.
	urls := map[string]string{"scheduler": p.schedulerURL, "metrics": p.metricsURL, "probes": p.probesURL}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		d.awaitServing(p, func() (int, error) { return get(urls[probe.HTTPGet.Port.String()]+probe.HTTPGet.Path, "") })
	}
	return p
}

func TestManifests(t *testing.T) {
	pauseScheduler(t)
	for _, test := range []struct {
		target        string
		schedulerName string
		lease         client.ObjectKey
	}{
		{"base", "muster-scheduler", client.ObjectKey{Namespace: musterNamespace, Name: "muster-scheduler"}},
		{"overlays/only-scheduler", corev1.DefaultSchedulerName, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"}},
	} {
		t.Run(test.target, func(t *testing.T) {
			s := newScene(t)
			d := s.deploy(test.target)
			d.awaitPodsAdmitted()
			p := d.start()
			s.awaitHeld(test.lease.Namespace, test.lease.Name)
			s.awaitHeld(musterNamespace, controllersLease)

			as := func(pod *corev1.Pod) { pod.Spec.SchedulerName = test.schedulerName }
			nodes := s.nodes(3, controlplane.NodeShape{})
			s.gangWaitsThenStarts(as)
			s.trainJobRuns(test.schedulerName)
			s.volumeIsBound(nodes[0], as)
			s.deviceIsAllocated(nodes[0], as)
			s.gangIsReleased(as)
			s.podIsPreempted(as)
			s.metricsAreGuarded(p, as)

			p.signal(syscall.SIGTERM)
			if code := p.exited(); code != 0 {
				t.Errorf("exit code %d after SIGTERM, want 0", code)
			}
		})
	}
}

// The proxy must see what the API server denies, or the test above would prove nothing.
func TestDeniedRequestsAreSeen(t *testing.T) {
	s := newScene(t)
	denied := watchDenied(t)
	account, err := cluster.ServiceAccountREST(s.ctx, s.namespace, "default")
	s.must(err)
	nobody, err := client.New(denied.through(account), client.Options{Scheme: kube.Scheme()})
	s.must(err)
	if err := nobody.List(s.ctx, &corev1.NodeList{}); err == nil {
		t.Fatal("a service account without rights may list nodes")
	}
	if seen := denied.all(); !slices.Contains(seen, "GET /api/v1/nodes: 403 Forbidden") {
		t.Errorf("got %q", seen)
	}
}

// awaitPodsAdmitted waits until the replicas exist: admission accepts their priority class, and their
// security context under the namespace's Pod Security level.
func (d *deployment) awaitPodsAdmitted() {
	d.Helper()
	d.await("replicas", func() string {
		pods := &corev1.PodList{}
		d.must(kube.List(d.ctx, pods, client.InNamespace(musterNamespace)))
		if len(pods.Items) == 2 {
			return ""
		}
		sets := &appsv1.ReplicaSetList{}
		d.must(kube.List(d.ctx, sets, client.InNamespace(musterNamespace)))
		why := fmt.Sprintf("%d of 2 pods", len(pods.Items))
		for _, set := range sets.Items {
			for _, condition := range set.Status.Conditions {
				why += ": " + condition.Message
			}
		}
		return why
	})
}

// gangWaitsThenStarts: 4 members on 3 nodes are refused, told why, and start with the fourth node.
func (s *scene) gangWaitsThenStarts(as func(*corev1.Pod)) {
	s.Helper()
	s.group("gang", 4)
	s.create(s.members("gang", 4, 8, as)...)
	s.awaitRefused("gang")
	s.nodes(1, controlplane.NodeShape{})
	s.awaitBound("gang", 4)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionTrue)
	for _, pod := range s.members("gang", 4, 8) {
		s.finish(pod.Name)
	}
	s.await("PodGroup gang", func() string {
		if succeeded := s.podGroup("gang").Status.Succeeded; succeeded != 4 {
			return fmt.Sprintf("%d members succeeded, want 4", succeeded)
		}
		return ""
	})
	for _, pod := range s.members("gang", 4, 8) {
		s.remove(pod.Name)
	}
}

// trainJobRuns: a TrainJob becomes a JobSet and a PodGroup, is bound whole, and can be suspended,
// resumed and deleted.
func (s *scene) trainJobRuns(schedulerName string) {
	s.Helper()
	// Of MPI, which needs the most objects.
	runtime := s.sandboxedRuntime("deepspeed-distributed-gang")
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "train"}}
	job.Spec.RuntimeRef.Name = runtime
	job.Spec.Trainer = &trainer.Trainer{
		NumNodes: ptr.To[int32](3),
		ResourcesPerNode: &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{gpuResource: resource.MustParse("8")},
		},
	}
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJobPods(3, schedulerName)

	s.suspend(job, true)
	s.awaitTrainJobPods(0, schedulerName)
	s.suspend(job, false)
	s.awaitTrainJobPods(3, schedulerName)

	s.must(kube.Delete(s.ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.await("JobSets", func() string {
		sets := &jobset.JobSetList{}
		s.must(kube.List(s.ctx, sets, client.InNamespace(s.namespace)))
		if len(sets.Items) > 0 {
			return "the TrainJob is deleted, its JobSet is not"
		}
		return ""
	})
	s.awaitTrainJobPods(0, schedulerName)
}

// sandboxedRuntime installs one of the shipped runtimes, with pods that need a RuntimeClass, and
// returns its name.
func (s *scene) sandboxedRuntime(shipped string) string {
	s.Helper()
	runtimes, err := manifests.Runtimes()
	s.must(err)
	at := slices.IndexFunc(runtimes, func(runtime *unstructured.Unstructured) bool { return runtime.GetName() == shipped })
	if at < 0 {
		s.Fatalf("no runtime %s is shipped", shipped)
	}
	runtime := &trainer.ClusterTrainingRuntime{}
	s.must(apiruntime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(runtimes[at].Object, runtime, true))
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Handler:    "sandbox",
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
	}
	runtime.Name = s.namespace
	for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
		runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.RuntimeClassName = &class.Name
	}
	for _, object := range []client.Object{class, runtime} {
		s.must(kube.Create(s.ctx, object))
		s.Cleanup(func() { s.must(client.IgnoreNotFound(kube.Delete(context.Background(), object))) })
	}
	return runtime.Name
}

func (s *scene) suspend(job *trainer.TrainJob, suspend bool) {
	s.Helper()
	patch := client.MergeFrom(job.DeepCopy())
	job.Spec.Suspend = &suspend
	s.must(kube.Patch(s.ctx, job, patch))
}

// awaitTrainJobPods waits until exactly n pods of the TrainJob exist, all bound by the named scheduler.
func (s *scene) awaitTrainJobPods(n int, schedulerName string) {
	s.Helper()
	s.await("pods of the TrainJob", func() string {
		pods := &corev1.PodList{}
		s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.HasLabels{jobset.JobSetNameKey}))
		bound := 0
		for _, pod := range pods.Items {
			if pod.Spec.SchedulerName != schedulerName {
				return fmt.Sprintf("%s has schedulerName %s", pod.Name, pod.Spec.SchedulerName)
			}
			if pod.Labels[podgroups.GroupLabel] == "" {
				return pod.Name + " is in no gang"
			}
			if pod.Spec.NodeName != "" {
				bound++
			}
		}
		if len(pods.Items) != n || bound != n {
			return fmt.Sprintf("%d pods of which %d bound, want %d", len(pods.Items), bound, n)
		}
		return ""
	})
}

// volumeIsBound: a claim that waits for its first consumer is bound to a volume of the consumer's node.
func (s *scene) volumeIsBound(node string, as func(*corev1.Pod)) {
	s.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: s.namespace},
		Provisioner:       "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class.Name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class.Name, AccessModes: volume.Spec.AccessModes,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	s.must(kube.Create(s.ctx, class))
	s.must(kube.Create(s.ctx, volume))
	s.must(kube.Create(s.ctx, claim))
	s.Cleanup(func() {
		s.must(client.IgnoreNotFound(kube.Delete(context.Background(), volume)))
		s.must(client.IgnoreNotFound(kube.Delete(context.Background(), class)))
	})
	s.create(s.pod("volume", "", 0, as, func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}}}
	}))
	s.awaitPodOn("volume", node)
}

// deviceIsAllocated: a resource claim is allocated by the scheduler.
func (s *scene) deviceIsAllocated(node string, as func(*corev1.Pod)) {
	s.Helper()
	class := s.deviceClass("")
	s.devices(node)
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "device"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
		}}}},
	}
	s.must(kube.Create(s.ctx, claim))
	s.create(s.pod("device", "", 0, as, func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	}))
	s.awaitPodOn("device", node)
	s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(claim), claim))
	if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 1 {
		s.Errorf("the pod runs, but its claim is not allocated to it: %+v", claim.Status)
	}
}

// podIsPreempted: a pod of higher priority takes the place of one that fills the cluster.
func (s *scene) podIsPreempted(as func(*corev1.Pod)) {
	s.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Value: 1000}
	s.createClass(class)
	victims := s.pods("victim", "", 4, 8, as)
	s.create(victims...)
	s.await("victims", func() string {
		for _, victim := range victims {
			s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(victim), victim))
			if victim.Spec.NodeName == "" {
				return victim.Name + " is not bound"
			}
		}
		return ""
	})
	s.create(s.pod("urgent", "", 8, as, func(pod *corev1.Pod) { pod.Spec.PriorityClassName = class.Name }))
	s.awaitPodOn("urgent", "")
}

// awaitPodOn waits until a pod is bound, to the node if one is given.
func (s *scene) awaitPodOn(name, node string) {
	s.Helper()
	s.await("pod "+name, func() string {
		pod := &corev1.Pod{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, pod))
		switch {
		case pod.Spec.NodeName == "":
			why := "not bound"
			for _, condition := range pod.Status.Conditions {
				why += ": " + condition.Message
			}
			return why
		case node != "" && pod.Spec.NodeName != node:
			return "bound to " + pod.Spec.NodeName
		}
		return ""
	})
}

var musterLine = regexp.MustCompile(`(?m)^muster_(waiting|reservation|gang_releases).*`)

// metricsAreGuarded: both halves serve metrics to who may read them, and to nobody else. Gangs that wait and gangs that were
// released are in them.
func (s *scene) metricsAreGuarded(p *process, as func(*corev1.Pod)) {
	s.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "reader"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account.Name}},
	}
	s.must(kube.Create(s.ctx, role))
	s.must(kube.Create(s.ctx, account))
	s.must(kube.Create(s.ctx, binding))
	s.Cleanup(func() {
		s.must(client.IgnoreNotFound(kube.Delete(context.Background(), binding)))
		s.must(client.IgnoreNotFound(kube.Delete(context.Background(), role)))
	})
	reader, err := cluster.ServiceAccountREST(s.ctx, s.namespace, account.Name)
	s.must(err)
	stranger, err := cluster.ServiceAccountREST(s.ctx, s.namespace, "default")
	s.must(err)
	s.group("waits", 4)
	s.create(s.members("waits", 4, 8, as)...) // on three nodes
	for url, lines := range map[string][]string{
		p.schedulerURL: {
			`muster_waiting_gangs{reason="Unschedulable"} 1`, `muster_waiting_gang_members{reason="Unschedulable"} 4`,
			`muster_waiting_gang_nodes{shape="nvidia.com/gpu=8"} `, "muster_reservation_active 0",
		},
		p.metricsURL: {`muster_gang_releases_total{reason="MembersNotReady"} 1`, `muster_gang_releases_total{reason="MembersMissing"} 0`},
	} {
		s.await("metrics of "+url, func() string {
			_, body, err := read(url+"/metrics", reader.BearerToken)
			if err != nil {
				return err.Error()
			}
			for _, line := range lines {
				if !strings.Contains(body, "\n"+line) {
					return "no line " + line + " among " + strings.Join(musterLine.FindAllString(body, -1), ", ")
				}
			}
			return ""
		})
	}
	for _, url := range []string{p.schedulerURL, p.metricsURL} {
		s.awaitServing(p, func() (int, error) { return get(url+"/metrics", reader.BearerToken) })
		for who, token := range map[string]string{"a stranger": stranger.BearerToken, "nobody": ""} {
			status, err := get(url+"/metrics", token)
			if err != nil || status != http.StatusForbidden && status != http.StatusUnauthorized {
				s.Errorf("%s/metrics answers %s with %d (%v)", url, who, status, err)
			}
		}
	}
}
