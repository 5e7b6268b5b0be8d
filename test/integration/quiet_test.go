package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	controller "github.com/muster-sched/muster/trainer"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// requests notes what a client asks of the API server.
type requests struct {
	next http.RoundTripper

	mu      sync.Mutex
	writes  []string
	watches map[string]bool
	secrets []string // what was read of Secrets, and in which form
}

var secretPath = regexp.MustCompile(`^/api/v1/(namespaces/[^/]+/)?secrets`)

// RoundTrip implements http.RoundTripper.
func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	path, query := request.URL.Path, request.URL.Query()
	switch {
	case request.Method != http.MethodGet:
		what := ""
		if body := request.GetBody; body != nil {
			if content, err := body(); err == nil {
				text, _ := io.ReadAll(content)
				what = fmt.Sprintf(" %.1000q", text)
			}
		}
		r.writes = append(r.writes, request.Method+" "+path+what)
	case query.Get("watch") != "":
		if selector := query.Get("labelSelector"); selector != "" {
			path += "?" + selector
		}
		r.watches[path] = true
	case secretPath.MatchString(path):
		r.secrets = append(r.secrets, path+" as "+request.Header.Get("Accept"))
	}
	r.mu.Unlock()
	return r.next.RoundTrip(request)
}

// reconciled returns how often TrainJobs were looked at in this process.
func (s *scene) reconciled() float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	total := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() == "controller" && label.GetValue() == "trainjob" {
					total += metric.Counter.GetValue()
				}
			}
		}
	}
	return total
}

// The trainer writes nothing for TrainJobs of which nothing has changed, however often it looks at them; and it holds no
// Secret in memory, and of ConfigMaps its own snapshots alone. A second trainer beside the one that made everything
// sees it all anew, and then at every resync.
func TestTrainerIsQuiet(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(4, controlplane.NodeShape{})
	flux := s.runtimeOf("flux", func(spec *trainer.TrainingRuntimeSpec) { spec.MLPolicy.Flux = &trainer.FluxMLPolicySource{} })
	volcano := s.runtimeOf("volcano", func(spec *trainer.TrainingRuntimeSpec) {
		spec.PodGroupPolicy = &trainer.PodGroupPolicy{PodGroupPolicySource: trainer.PodGroupPolicySource{Volcano: &trainer.VolcanoPodGroupPolicySource{}}}
	})
	jobs := map[string]func(*trainer.TrainJob){
		"runs":   func(*trainer.TrainJob) {},
		"paused": func(j *trainer.TrainJob) { j.Spec.Suspend = ptr.To(true) },
		"mpi": func(j *trainer.TrainJob) {
			j.Spec.RuntimeRef.Name, j.Spec.Suspend = "mlx-distributed-gang", ptr.To(true)
		},
		"flux":    func(j *trainer.TrainJob) { j.Spec.RuntimeRef, j.Spec.Suspend = flux, ptr.To(true) },
		"volcano": func(j *trainer.TrainJob) { j.Spec.RuntimeRef, j.Spec.Suspend = volcano, ptr.To(true) },
		"done":    func(*trainer.TrainJob) {},
	}
	for name, change := range jobs {
		job := s.trainJob(name, "torch-distributed-gang", 1, 1)
		change(job)
		s.must(kube.Create(s.ctx, job))
	}
	s.awaitTrainPods("done", 1, true)
	s.finish(s.trainPods("done")[0].Name)
	s.awaitTrainJob("done", trainer.TrainJobComplete)
	s.awaitTrainPods("runs", 1, true)
	s.await("the running job's status", func() string {
		job := &trainer.TrainJob{}
		s.must(kube.Get(s.ctx, s.key("runs"), job))
		if len(job.Status.JobsStatus) != 1 || *job.Status.JobsStatus[0].Ready != 1 {
			return fmt.Sprint(job.Status)
		}
		return ""
	})
	for name := range jobs {
		s.await("status of "+name, func() string {
			job, set := &trainer.TrainJob{}, &jobset.JobSet{}
			s.must(kube.Get(s.ctx, s.key(name), job))
			if err := kube.Get(s.ctx, s.key(name), set); err != nil {
				return err.Error()
			}
			if len(job.Status.JobsStatus) != len(set.Status.ReplicatedJobsStatus) || ptr.Deref(job.Spec.Suspend, false) != meta.IsStatusConditionTrue(set.Status.Conditions, string(jobset.JobSetSuspended)) {
				return "it lags behind"
			}
			return ""
		})
	}

	seen := &requests{watches: map[string]bool{}}
	rest := cluster.REST()
	rest.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	scheme := runtime.NewScheme()
	s.must(controller.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: controller.CacheByObject(), DefaultTransform: controller.KeepOwnManagedFields, SyncPeriod: ptr.To(time.Second)},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	s.must(err)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.must(controller.SetupWithManager(ctx, mgr, controller.Options{SchedulerName: schedulerName, SkipNameValidation: true}))
	before := s.reconciled()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.await("resyncs", func() string {
		if looks := s.reconciled() - before; looks < float64(4*len(jobs)) {
			return fmt.Sprintf("looked %v times", looks)
		}
		return ""
	})
	cancel()
	s.must(<-ended)

	// What earlier tests left in namespaces that are still being deleted does change.
	writes := slices.DeleteFunc(seen.writes, func(write string) bool {
		return strings.Contains(write, "/namespaces/") && !strings.Contains(write, "/namespaces/"+s.namespace+"/")
	})
	if len(writes) > 0 {
		t.Errorf("writes: %v", writes)
	}
	want := []string{
		"/api/v1/configmaps?trainer.muster.dev/runtime-snapshot=true",
		"/api/v1/limitranges",
		"/apis/jobset.x-k8s.io/v1alpha2/jobsets",
		"/apis/scheduling.volcano.sh/v1beta1/podgroups",
		"/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
		"/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
		"/apis/trainer.kubeflow.org/v1alpha1/trainingruntimes",
		"/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(seen.watches))); diff != "" {
		t.Errorf("kept in memory (-want +got)\n%s", diff)
	}
	for _, read := range seen.secrets {
		if !strings.Contains(read, "/secrets/") || !strings.Contains(read, "as=PartialObjectMetadata") {
			t.Errorf("more is read than one Secret's metadata: %s", read)
		}
	}
	if len(seen.secrets) == 0 {
		t.Error("no Secret of the suspended MPI job was looked for")
	}
}
