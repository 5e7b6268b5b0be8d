package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// statusClient reports progress as a training pod does.
type statusClient struct {
	*scene
	http.Client
	base string
}

// startWithProgress replaces muster-scheduler by one with the status server.
func startWithProgress(t *testing.T) *statusClient {
	t.Helper()
	pauseScheduler(t)
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The port is free now, and nobody else looks for one.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	own, err := cluster.StartScheduler(context.Background(), controlplane.SchedulerConfig{Args: []string{
		"--v=2", "--trainer-scheduler-name=" + schedulerName, "--trainer-feature-gates=TrainJobStatus=true",
		"--trainer-status-bind-address=" + address, "--trainer-status-url=https://" + address, "--trainer-status-cert-dir=" + dir,
		"--trainer-status-qps=100", "--trainer-status-burst=100",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	c := &statusClient{base: "https://" + address}
	c.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(c.CloseIdleConnections)
	c.scene = newScene(t)
	return c
}

// token issues a token as a kubelet asks for it; bound to no pod if pod is nil.
func (c *statusClient) token(audience string, pod *corev1.Pod) string {
	c.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: ptr.To[int64](3600)}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	response, err := cluster.Client().CoreV1().ServiceAccounts(c.namespace).CreateToken(c.ctx, "default", request, metav1.CreateOptions{})
	c.must(err)
	return response.Status.Token
}

// post reports, and returns the code and what was answered.
func (c *statusClient) post(url, token, body string) (int, *metav1.Status) {
	c.Helper()
	request, err := http.NewRequestWithContext(c.ctx, http.MethodPost, url, strings.NewReader(body))
	c.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(request)
	c.must(err)
	defer func() { _ = response.Body.Close() }()
	content := &bytes.Buffer{}
	_, err = content.ReadFrom(response.Body)
	c.must(err)
	status := &metav1.Status{}
	c.must(json.Unmarshal(content.Bytes(), status))
	return response.StatusCode, status
}

func envValue(pod *corev1.Pod, name string) string {
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

// Training pods report their progress with tokens that a real API server issued; nobody else can.
func TestProgressReports(t *testing.T) {
	c := startWithProgress(t)
	c.nodes(4, controlplane.NodeShape{})
	for _, name := range []string{"llm", "other"} {
		job := c.trainJob(name, "gang", 2, 8)
		if name == "llm" {
			job.Spec.RuntimeRef = c.runtimeOf("gang", gangPolicy)
		} else {
			job.Spec.RuntimeRef = trainer.RuntimeRef{Name: "gang", Kind: ptr.To(trainer.TrainingRuntimeKind)}
		}
		c.must(kube.Create(c.ctx, job))
		c.awaitTrainPods(name, 2, true)
	}
	pod, otherPod := &c.trainPods("llm")[0], &c.trainPods("other")[0]
	stranger := c.pod("stranger", "", 0, func(p *corev1.Pod) {
		p.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": pod.Labels["jobset.sigs.k8s.io/jobset-uid"]}
	})
	c.must(kube.Create(c.ctx, stranger))

	url := envValue(pod, "KUBEFLOW_TRAINER_SERVER_URL")
	if want := c.base + "/apis/trainer.kubeflow.org/v1alpha1/namespaces/" + c.namespace + "/trainjobs/llm/status"; url != want {
		t.Fatalf("URL = %q, want %q", url, want)
	}
	projection, files := (*corev1.ServiceAccountTokenProjection)(nil), []string{}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != "kubeflow-trainer-token" {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				projection = source.ServiceAccountToken
				files = append(files, "/var/run/secrets/kubeflow/trainer/"+projection.Path)
			} else {
				config := &corev1.ConfigMap{}
				c.must(kube.Get(c.ctx, c.key(source.ConfigMap.Name), config))
				if !strings.Contains(config.Data[source.ConfigMap.Items[0].Key], "BEGIN CERTIFICATE") {
					t.Errorf("ConfigMap = %v", config.Data)
				}
				files = append(files, "/var/run/secrets/kubeflow/trainer/"+source.ConfigMap.Items[0].Path)
			}
		}
	}
	if got := fmt.Sprint(files); got != fmt.Sprint([]string{envValue(pod, "KUBEFLOW_TRAINER_SERVER_TOKEN"), envValue(pod, "KUBEFLOW_TRAINER_SERVER_CA_CERT")}) {
		t.Fatalf("files %v, env %v", files, pod.Spec.Containers[0].Env)
	}
	token := c.token(projection.Audience, pod)

	const report = `{"trainerStatus":{"progressPercentage":42,"estimatedRemainingSeconds":60,"metrics":[{"name":"loss","value":"0.5"}],"lastUpdatedTime":"2026-03-01T12:00:00Z"}}`
	if code, status := c.post(url, token, report); code != http.StatusOK {
		t.Fatalf("%d: %+v", code, status)
	}
	progress := func() *trainer.TrainerStatus {
		job := &trainer.TrainJob{}
		c.must(kube.Get(c.ctx, c.key("llm"), job))
		return job.Status.TrainerStatus
	}
	if got := progress(); got == nil || *got.ProgressPercentage != 42 || *got.EstimatedRemainingSeconds != 60 || len(got.Metrics) != 1 || got.Metrics[0].Value != "0.5" {
		t.Errorf("progress = %+v", got)
	}
	// A report replaces the last one.
	if code, status := c.post(url, token, `{"trainerStatus":{"progressPercentage":43,"lastUpdatedTime":"2026-03-01T12:01:00Z"}}`); code != http.StatusOK {
		t.Fatalf("%d: %+v", code, status)
	}
	if got := progress(); *got.ProgressPercentage != 43 || got.EstimatedRemainingSeconds != nil || got.Metrics != nil {
		t.Errorf("progress = %+v", got)
	}
	c.awaitShown("llm", "Progress", "43")
	if code, _ := c.post(url, token, `{}`); code != http.StatusOK || *progress().ProgressPercentage != 43 {
		t.Errorf("an empty report: %d, %+v", code, progress())
	}

	long := `{"trainerStatus":{"metrics":[` + strings.Repeat(`{"name":"m","value":"0.5"},`, 4000) + `]}}`
	for name, tc := range map[string]struct {
		url, token, body string
		code             int
		message          string
	}{
		"no token":                   {url, "", report, 403, "Forbidden"},
		"no token at all":            {url, "garbage", report, 403, "Forbidden"},
		"another TrainJob's token":   {url, c.token(strings.Replace(projection.Audience, "/llm/", "/other/", 1), otherPod), report, 403, "Forbidden"},
		"another TrainJob's pod":     {url, c.token(projection.Audience, otherPod), report, 403, "Forbidden"},
		"a token for the API server": {url, c.token("https://kubernetes.default.svc", pod), report, 403, "Forbidden"},
		"a token that nobody holds":  {url, c.token(projection.Audience, nil), report, 403, "Forbidden"},
		"a pod that says it is one":  {url, c.token(projection.Audience, stranger), report, 403, "Forbidden"},
		"another TrainJob":           {strings.Replace(url, "/llm/", "/other/", 1), token, report, 403, "Forbidden"},
		"another namespace":          {strings.Replace(url, c.namespace, "default", 1), token, report, 403, "Forbidden"},
		"another path":               {c.base + "/apis", token, report, 404, "Not found"},
		"no JSON":                    {url, token, "invalid payload", 422, "Invalid payload"},
		"too large":                  {url, token, long, 413, "Payload too large"},
		"too much progress":          {url, token, strings.Replace(report, "42", "101", 1), 422, "status.trainerStatus.progressPercentage"},
		"no time":                    {url, token, `{"trainerStatus":{"progressPercentage":1}}`, 422, "lastUpdatedTime"},
		"a metric without a value":   {url, token, strings.Replace(report, `"0.5"`, `""`, 1), 422, "status.trainerStatus.metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			code, status := c.post(tc.url, tc.token, tc.body)
			if code != tc.code || int(status.Code) != tc.code || status.Status != metav1.StatusFailure || !strings.Contains(status.Message, tc.message) {
				t.Errorf("%d: %+v, want %d with %q", code, status, tc.code, tc.message)
			}
		})
	}
	if got := progress(); *got.ProgressPercentage != 43 {
		t.Errorf("a refused report was written: %+v", got)
	}

	t.Run("the example client", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		if err != nil {
			t.Skip(err)
		}
		dir := t.TempDir()
		config := &corev1.ConfigMap{}
		c.must(kube.Get(c.ctx, c.key("llm-tls-config"), config))
		for name, content := range map[string]string{"token": token, "ca.crt": config.Data["ca.crt"]} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		command := exec.CommandContext(c.ctx, python, "../../examples/progress.py", "44")
		command.Env = append(os.Environ(), "KUBEFLOW_TRAINER_SERVER_URL="+url,
			"KUBEFLOW_TRAINER_SERVER_TOKEN="+filepath.Join(dir, "token"), "KUBEFLOW_TRAINER_SERVER_CA_CERT="+filepath.Join(dir, "ca.crt"))
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		if got := progress(); *got.ProgressPercentage != 44 {
			t.Errorf("progress = %+v", got)
		}
	})

	// The controller and the status server leave each other's part alone.
	for _, p := range c.trainPods("llm") {
		c.setPhase(p.Name, corev1.PodSucceeded)
	}
	c.awaitTrainJob("llm", trainer.TrainJobComplete)
	if got := progress(); got == nil || *got.ProgressPercentage < 43 {
		t.Errorf("progress at the end = %+v", got)
	}
}

// The status server as it is deployed: at the address that pods are told, with the certificate and the rights of
// the manifests. Denied requests fail the test.
func TestProgressReportsAsDeployed(t *testing.T) {
	pauseScheduler(t)
	c := &statusClient{scene: newScene(t)}
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	c.startWithWebhooks("overlays/with-trainjob-status", "--trainer-status-bind-address="+address)
	c.nodes(1, controlplane.NodeShape{})
	job := c.trainJob("llm", "gang", 1, 8)
	job.Spec.RuntimeRef = c.runtimeOf("gang", gangPolicy)
	c.must(kube.Create(c.ctx, job))
	c.awaitTrainPods("llm", 1, true)

	pod, config := &c.trainPods("llm")[0], &corev1.ConfigMap{}
	c.must(kube.Get(c.ctx, c.key("llm-tls-config"), config))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(config.Data["ca.crt"])) {
		t.Fatalf("ConfigMap = %v", config.Data)
	}
	// There is no network of Services here. The certificate is asked for by the Service's name still.
	c.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, asked string) (net.Conn, error) {
			if asked != "muster-webhooks.muster-system.svc:10443" {
				return nil, fmt.Errorf("%s is not the Service", asked)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(c.CloseIdleConnections)
	token := c.token("trainer.kubeflow.org/v1alpha1/namespaces/"+c.namespace+"/trainjobs/llm/status", pod)
	code, status := c.post(envValue(pod, "KUBEFLOW_TRAINER_SERVER_URL"), token,
		`{"trainerStatus":{"progressPercentage":42,"lastUpdatedTime":"2026-03-01T12:00:00Z"}}`)
	if code != http.StatusOK {
		t.Fatalf("%d: %+v", code, status)
	}
	c.must(kube.Get(c.ctx, c.key("llm"), job))
	if got := job.Status.TrainerStatus; got == nil || *got.ProgressPercentage != 42 {
		t.Errorf("progress = %+v", got)
	}
}
