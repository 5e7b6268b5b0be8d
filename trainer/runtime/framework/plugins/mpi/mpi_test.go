package mpi

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/jobset"
)

func replicated(name, ancestor string) jobsetv1alpha2.ReplicatedJob {
	job := jobsetv1alpha2.ReplicatedJob{Name: name}
	if ancestor != "" {
		job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
	}
	job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node"}, {Name: "sidecar"}}
	return job
}

// mpiRuntime has workers, and then a launcher that spec.trainer configures and that trains.
func mpiRuntime(change func(*v1alpha1.TrainingRuntimeSpec)) *v1alpha1.TrainingRuntimeSpec {
	spec := &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](1), MLPolicySource: v1alpha1.MLPolicySource{MPI: &v1alpha1.MPIMLPolicySource{
			NumProcPerNode: ptr.To[int32](1), MPIImplementation: ptr.To(v1alpha1.MPIImplementationOpenMPI),
			SSHAuthMountPath: ptr.To("/home/mpiuser/.ssh"), RunLauncherAsNode: ptr.To(true),
		}}},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{
			replicated("node", ""), replicated("launcher", v1alpha1.AncestorTrainer), replicated("monitor", ""),
		}}},
	}
	if change != nil {
		change(spec)
	}
	return spec
}

func trainJob(trainer *v1alpha1.Trainer) *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u-llm"}, Spec: v1alpha1.TrainJobSpec{Trainer: trainer},
	}
}

func enforce(t *testing.T, job *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) *runtime.Info {
	t.Helper()
	info, err := runtime.New(job, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(nil, nil).EnforceMLPolicy(info, job); err != nil {
		t.Fatal(err)
	}
	return info
}

func envOf(slots string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "OMPI_MCA_orte_default_hostfile", Value: "/etc/mpi/hostfile"},
		{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "true"},
		{Name: "OMPI_MCA_orte_set_default_slots", Value: slots},
		{Name: "OMPI_MCA_plm_rsh_args", Value: "-o ConnectionAttempts=10"},
		{Name: "PRTE_MCA_prte_default_hostfile", Value: "/etc/mpi/hostfile"},
		{Name: "PRTE_MCA_prte_keep_fqdn_hostnames", Value: "false"},
		{Name: "PRTE_MCA_prte_set_default_slots", Value: slots},
		{Name: "PRTE_MCA_plm_ssh_args", Value: "-o ConnectionAttempts=10"},
	}
}

func TestEnforceMLPolicy(t *testing.T) {
	info := enforce(t, trainJob(&v1alpha1.Trainer{NumNodes: ptr.To[int32](3), NumProcPerNode: ptr.To[int32](8)}), mpiRuntime(nil))
	keys := corev1.Volume{Name: "mpi-ssh-auth", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "llm-mpi-ssh-auth", DefaultMode: ptr.To[int32](0o400), Items: []corev1.KeyToPath{
			{Key: "ssh-privatekey", Path: "id_rsa", Mode: ptr.To[int32](0o640)},
			{Key: "ssh-publickey", Path: "id_rsa.pub", Mode: ptr.To[int32](0o644)},
			{Key: "ssh-publickey", Path: "authorized_keys", Mode: ptr.To[int32](0o644)},
		},
	}}}
	hostfile := corev1.Volume{Name: "mpi-hostfile", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "llm-mpi-hostfile"},
		Items:                []corev1.KeyToPath{{Key: "hostfile", Path: "hostfile", Mode: ptr.To[int32](0o444)}},
	}}}
	keysMount := corev1.VolumeMount{Name: "mpi-ssh-auth", MountPath: "/home/mpiuser/.ssh"}
	for name, want := range map[string]corev1.PodSpec{
		"node": {
			Volumes:    []corev1.Volume{keys},
			Containers: []corev1.Container{{Name: "node", VolumeMounts: []corev1.VolumeMount{keysMount}}, {Name: "sidecar"}},
		},
		"launcher": {
			Volumes: []corev1.Volume{keys, hostfile},
			Containers: []corev1.Container{
				{Name: "node", VolumeMounts: []corev1.VolumeMount{keysMount, {Name: "mpi-hostfile", MountPath: "/etc/mpi"}}, Env: envOf("8")},
				{Name: "sidecar"},
			},
		},
		"monitor": {Containers: []corev1.Container{{Name: "node"}, {Name: "sidecar"}}},
	} {
		if diff := cmp.Diff(want, *info.ByName(name).PodSpec()); diff != "" {
			t.Errorf("pods of %s (-want +got)\n%s", name, diff)
		}
	}
	t.Run("defaults of the API", func(t *testing.T) {
		info := enforce(t, trainJob(nil), mpiRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI = &v1alpha1.MPIMLPolicySource{} }))
		node := info.ByName("launcher").Container("node")
		if node.VolumeMounts[0].MountPath != "/root/.ssh" || node.Env[2].Value != "1" {
			t.Errorf("container = %+v", node)
		}
	})
	t.Run("no container of the name", func(t *testing.T) {
		info := enforce(t, trainJob(nil), mpiRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "worker"
		}))
		if len(info.ByName("node").PodSpec().Containers[0].VolumeMounts) != 0 {
			t.Error("another container got the keys")
		}
	})
	t.Run("another policy", func(t *testing.T) {
		info := enforce(t, trainJob(nil), mpiRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI = nil }))
		if len(info.ByName("launcher").PodSpec().Volumes) != 0 {
			t.Error("pods have volumes")
		}
	})
}

func TestSlots(t *testing.T) {
	limit := func(name corev1.ResourceName, amount string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}}
	}
	workersHave := func(r *corev1.ResourceRequirements) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = *r
		}
	}
	nodes := ptr.To[int32](2)
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		change  func(*v1alpha1.TrainingRuntimeSpec)
		want    int32
	}{
		"nothing":                 {nil, nil, 1},
		"the TrainJob's":          {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](3), ResourcesPerNode: limit("nvidia.com/gpu", "8")}, nil, 3},
		"the TrainJob's one":      {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](1), ResourcesPerNode: limit("nvidia.com/gpu", "8")}, nil, 1},
		"the runtime's":           {&v1alpha1.Trainer{ResourcesPerNode: limit("nvidia.com/gpu", "8")}, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI.NumProcPerNode = ptr.To[int32](2) }, 2},
		"one for each GPU":        {&v1alpha1.Trainer{NumNodes: nodes, ResourcesPerNode: limit("nvidia.com/gpu", "8")}, nil, 8},
		"of the only node":        {&v1alpha1.Trainer{ResourcesPerNode: limit("nvidia.com/gpu", "8")}, nil, 8},
		"one for each Gaudi":      {&v1alpha1.Trainer{NumNodes: nodes, ResourcesPerNode: limit("habana.ai/gaudi", "8")}, nil, 8},
		"GPUs of the runtime":     {&v1alpha1.Trainer{NumNodes: nodes}, workersHave(limit("nvidia.com/gpu", "4")), 4},
		"GPUs, and CPUs besides":  {&v1alpha1.Trainer{NumNodes: nodes, ResourcesPerNode: limit("cpu", "32")}, workersHave(limit("nvidia.com/gpu", "4")), 4},
		"memory of a GPU is none": {&v1alpha1.Trainer{NumNodes: nodes, ResourcesPerNode: limit("nvidia.com/gpumem", "4000")}, nil, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			if got := slots(enforce(t, job, mpiRuntime(tc.change)), job); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestHostfile(t *testing.T) {
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		change  func(*v1alpha1.TrainingRuntimeSpec)
		want    string
	}{
		"the launcher trains": {
			&v1alpha1.Trainer{NumNodes: ptr.To[int32](3), NumProcPerNode: ptr.To[int32](2)}, nil,
			"llm-node-0-0.llm slots=2\nllm-node-0-1.llm slots=2\nllm-launcher-0-0.llm slots=2\n",
		},
		"the launcher is the only node": {&v1alpha1.Trainer{NumNodes: ptr.To[int32](1)}, nil, "llm-launcher-0-0.llm slots=1\n"},
		"only workers": {
			&v1alpha1.Trainer{NumNodes: ptr.To[int32](2)},
			func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI.RunLauncherAsNode = nil },
			"llm-node-0-0.llm slots=1\nllm-node-0-1.llm slots=1\n",
		},
		"replicas and a subdomain": {
			&v1alpha1.Trainer{NumNodes: ptr.To[int32](2)},
			func(s *v1alpha1.TrainingRuntimeSpec) {
				s.MLPolicy.MPI.RunLauncherAsNode = nil
				s.Template.Spec.ReplicatedJobs[0].Replicas = 2
				s.Template.Spec.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
			},
			"llm-node-0-0.mesh slots=1\nllm-node-0-1.mesh slots=1\nllm-node-1-0.mesh slots=1\nllm-node-1-1.mesh slots=1\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			info := enforce(t, job, mpiRuntime(tc.change))
			if err := jobset.New(nil, nil).IdentifyPodNetwork(info, job); err != nil {
				t.Fatal(err)
			}
			objects, err := New(nil, nil).Build(context.Background(), info, job)
			if err != nil || len(objects) != 2 {
				t.Fatalf("%d objects, error %v", len(objects), err)
			}
			configMap := objects[1].(*corev1.ConfigMap)
			if diff := cmp.Diff(map[string]string{"hostfile": tc.want}, configMap.Data); diff != "" {
				t.Errorf("data (-want +got)\n%s", diff)
			}
			if configMap.Name != "llm-mpi-hostfile" || configMap.Namespace != "research" || !metav1.IsControlledBy(configMap, job) {
				t.Errorf("metadata = %+v", configMap.ObjectMeta)
			}
		})
	}
	t.Run("another policy", func(t *testing.T) {
		job := trainJob(nil)
		info := enforce(t, job, mpiRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI = nil }))
		if objects, err := New(nil, nil).Build(context.Background(), info, job); err != nil || len(objects) != 0 {
			t.Errorf("%d objects, error %v", len(objects), err)
		}
	})
}

func TestSSHAuthSecret(t *testing.T) {
	job := trainJob(nil)
	secret := sshAuthSecret(job)
	if secret.Name != "llm-mpi-ssh-auth" || secret.Namespace != "research" || !metav1.IsControlledBy(secret, job) {
		t.Errorf("metadata = %+v", secret.ObjectMeta)
	}
	if secret.Type != corev1.SecretTypeSSHAuth || !*secret.Immutable || len(secret.Data) != 0 {
		t.Errorf("type %s, immutable %v, %d keys", secret.Type, *secret.Immutable, len(secret.Data))
	}
}

// The two keys belong together, and no two TrainJobs share them.
func TestNewKeys(t *testing.T) {
	var publics []string
	for range 2 {
		keys, err := newKeys()
		if err != nil || len(keys) != 2 {
			t.Fatalf("%d keys, error %v", len(keys), err)
		}
		block, rest := pem.Decode(keys["ssh-privatekey"])
		if block == nil || len(rest) != 0 {
			t.Fatal("the private key is no PEM")
		}
		private, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil || private.Curve.Params().Name != "P-521" {
			t.Fatalf("private key: %v", err)
		}
		// What ssh itself does with the two files.
		signer, err := ssh.ParsePrivateKey(keys["ssh-privatekey"])
		if err != nil {
			t.Fatal(err)
		}
		public, _, _, rest, err := ssh.ParseAuthorizedKey(keys["ssh-publickey"])
		if err != nil || len(rest) != 0 || public.Type() != "ecdsa-sha2-nistp521" {
			t.Fatalf("public key: %v", err)
		}
		if !slices.Equal(signer.PublicKey().Marshal(), public.Marshal()) {
			t.Error("the keys do not belong together")
		}
		publics = append(publics, string(keys["ssh-publickey"]))
	}
	if publics[0] == publics[1] {
		t.Error("the keys are the same every time")
	}
}

func TestValidate(t *testing.T) {
	policy := func(change func(*v1alpha1.MPIMLPolicySource)) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) { change(s.MLPolicy.MPI) }
	}
	only := func(i int) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs = s.Template.Spec.ReplicatedJobs[i : i+1]
		}
	}
	nodes := func(n int32) *v1alpha1.Trainer { return &v1alpha1.Trainer{NumNodes: &n} }
	var reserved []corev1.EnvVar
	var reservedFields []string
	for i, variable := range envOf("1") {
		reserved = append(reserved, corev1.EnvVar{Name: variable.Name})
		reservedFields = append(reservedFields, "spec.trainer.env["+string(rune('0'+i))+"].name")
	}
	reserved = append(reserved, corev1.EnvVar{Name: "OMPI_MCA_btl"})
	path := "runtime.spec.mlPolicy.mpi."
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		change  func(*v1alpha1.TrainingRuntimeSpec)
		want    []string
	}{
		"fine":                    {nodes(4), nil, nil},
		"no trainer":              {nil, nil, nil},
		"nothing set":             {nil, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI = &v1alpha1.MPIMLPolicySource{} }, nil},
		"implementation unset":    {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.MPIImplementation = ptr.To[v1alpha1.MPIImplementation]("") }), nil},
		"another implementation":  {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.MPIImplementation = ptr.To[v1alpha1.MPIImplementation]("MPICH") }), []string{path + "mpiImplementation"}},
		"no slots":                {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.NumProcPerNode = ptr.To[int32](0) }), []string{path + "numProcPerNode"}},
		"no path":                 {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.SSHAuthMountPath = ptr.To("") }), []string{path + "sshAuthMountPath"}},
		"a relative path":         {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.SSHAuthMountPath = ptr.To(".ssh") }), []string{path + "sshAuthMountPath"}},
		"a path with a colon":     {nil, policy(func(p *v1alpha1.MPIMLPolicySource) { p.SSHAuthMountPath = ptr.To("/a:b") }), []string{path + "sshAuthMountPath"}},
		"reserved":                {&v1alpha1.Trainer{Env: reserved}, nil, reservedFields},
		"no job of MPI's":         {nil, only(2), []string{"runtime.spec.template.spec.replicatedJobs"}},
		"a node without launcher": {nodes(1), only(0), nil},
		"nodes without launcher":  {nodes(2), only(0), []string{"spec.trainer.numNodes"}},
		"a launcher alone":        {nodes(1), only(1), nil},
		"nodes without workers":   {nodes(2), only(1), []string{"spec.trainer.numNodes"}},
		"workers without launcher, none of which has to be a node": {
			nodes(2), func(s *v1alpha1.TrainingRuntimeSpec) { only(0)(s); s.MLPolicy.MPI.RunLauncherAsNode = nil }, nil,
		},
		"more nodes than a hostfile holds": {nodes(100000), nil, []string{"spec.trainer.numNodes"}},
		"as many nodes as there are":       {nodes(1<<31 - 1), nil, []string{"spec.trainer.numNodes"}},
		"another policy": {
			&v1alpha1.Trainer{Env: reserved}, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.MPI = nil }, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			info, err := runtime.New(job, mpiRuntime(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, err := range New(nil, nil).Validate(info, job) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got)\n%s", diff)
			}
		})
	}
}

// In a queue of Kueue's, the number of nodes must be where Kueue looks for it.
func TestValidateQueued(t *testing.T) {
	runtimeNodes := func(n int32) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.NumNodes = &n }
	}
	four := ptr.To[int32](4)
	for name, tc := range map[string]struct {
		trainer *v1alpha1.Trainer
		change  func(*v1alpha1.TrainingRuntimeSpec)
		refused bool
	}{
		"the TrainJob's number":            {&v1alpha1.Trainer{NumNodes: four}, runtimeNodes(4), false},
		"the runtime's number":             {&v1alpha1.Trainer{}, runtimeNodes(4), true},
		"the runtime's, without a trainer": {nil, runtimeNodes(4), true},
		"the runtime's one":                {nil, runtimeNodes(1), false},
		"no number":                        {nil, nil, false},
		"the template's number": {nil, func(s *v1alpha1.TrainingRuntimeSpec) {
			runtimeNodes(4)(s)
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = four
		}, false},
		"no workers": {nil, func(s *v1alpha1.TrainingRuntimeSpec) {
			runtimeNodes(4)(s)
			s.Template.Spec.ReplicatedJobs = s.Template.Spec.ReplicatedJobs[1:]
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			for _, queue := range []string{"", "research"} {
				job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
				info, err := runtime.New(job, mpiRuntime(tc.change))
				if err != nil {
					t.Fatal(err)
				}
				errs := New(nil, nil).Validate(info, job)
				if refused := len(errs) == 1 && errs[0].Field == "spec.trainer.numNodes"; refused != (tc.refused && queue != "") {
					t.Errorf("in queue %q: %v", queue, errs)
				}
			}
		})
	}
}

// The largest hostfile that validation accepts fits into a ConfigMap, and not much less does.
func TestLargestHostfile(t *testing.T) {
	accepted := func(nodes int32) bool {
		job := trainJob(&v1alpha1.Trainer{NumNodes: &nodes})
		info, err := runtime.New(job, mpiRuntime(nil))
		if err != nil {
			t.Fatal(err)
		}
		return len(validateHostfile(info, job)) == 0
	}
	low, high := int32(1), int32(1<<20)
	for high-low > 1 {
		if middle := low + (high-low)/2; accepted(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	job := trainJob(&v1alpha1.Trainer{NumNodes: &low})
	info := enforce(t, job, mpiRuntime(nil))
	if err := jobset.New(nil, nil).IdentifyPodNetwork(info, job); err != nil {
		t.Fatal(err)
	}
	hostfile := hostfileConfigMap(info, job).Data["hostfile"]
	if bytes := len(hostfile); bytes > maxHostfileBytes || bytes < maxHostfileBytes*9/10 || strings.Count(hostfile, "\n") != int(low) {
		t.Errorf("%d nodes have %d bytes", low, bytes)
	}
}
