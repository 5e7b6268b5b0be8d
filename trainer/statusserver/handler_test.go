package statusserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const (
	llmPath = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/llm/status"
	report  = `{"trainerStatus":{"progressPercentage":42,"lastUpdatedTime":"2026-03-01T12:00:00Z"}}`
)

// good takes the token "good" for the TrainJob research/llm, and breaks on the token "broken".
var good = authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if token == "broken" {
		return nil, false, errors.New("no API server")
	}
	audiences, _ := authenticator.AudiencesFrom(ctx)
	return nil, token == "good" && audiences.Has("trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/llm/status"), nil
})

func newClient(t *testing.T, fail error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.TrainJob{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, name string, object apiruntime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if fail != nil {
				return fail
			}
			return c.SubResource(name).Apply(ctx, object, opts...)
		}}).Build()
}

func trainJob() *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
}

func TestHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path, authorization, body string
		chunked                           bool
		fail                              error
		code                              int
		reason                            metav1.StatusReason
		message                           string
	}{
		"report":               {authorization: "Bearer good", body: report, code: 200},
		"nothing to report":    {authorization: "Bearer good", body: `{}`, code: 200},
		"no header":            {body: report, code: 403, reason: "Forbidden", message: "Forbidden"},
		"wrong token":          {authorization: "Bearer bad", body: report, code: 403, reason: "Forbidden", message: "Forbidden"},
		"another scheme":       {authorization: "Basic good", body: report, code: 403, reason: "Forbidden", message: "Forbidden"},
		"another TrainJob":     {path: strings.Replace(llmPath, "llm", "other", 1), authorization: "Bearer good", body: report, code: 403, reason: "Forbidden", message: "Forbidden"},
		"no answer":            {authorization: "Bearer broken", body: report, code: 500, reason: "InternalError", message: "Internal error"},
		"no JSON":              {authorization: "Bearer good", body: `invalid payload`, code: 422, reason: "Invalid", message: "Invalid payload"},
		"no body":              {authorization: "Bearer good", code: 422, reason: "Invalid", message: "Invalid payload"},
		"too large":            {authorization: "Bearer good", body: strings.Repeat(" ", 1<<16) + report, code: 413, reason: "RequestEntityTooLarge", message: "Payload too large"},
		"too large, in chunks": {authorization: "Bearer good", body: strings.Repeat(" ", 1<<16) + report, chunked: true, code: 413, reason: "RequestEntityTooLarge", message: "Payload too large"},
		"as large as may be":   {authorization: "Bearer good", body: strings.Repeat(" ", 1<<16-len(report)) + report, code: 200},
		"another path":         {path: "/healthz", authorization: "Bearer good", body: report, code: 404, reason: "NotFound", message: "Not found"},
		"another method":       {method: http.MethodGet, authorization: "Bearer good", code: 404, reason: "NotFound", message: "Not found"},
		"API server fails":     {authorization: "Bearer good", body: report, fail: errors.New("secret detail"), code: 500, reason: "InternalError", message: "Internal error"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(newHandler(good, newClient(t, tc.fail, trainJob())))
			defer server.Close()
			path, method := llmPath, http.MethodPost
			if tc.path != "" {
				path = tc.path
			}
			if tc.method != "" {
				method = tc.method
			}
			request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.chunked {
				request.ContentLength = -1
			}
			if tc.authorization != "" {
				request.Header.Set("Authorization", tc.authorization)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != tc.code || response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("code %d, content type %q, want %d", response.StatusCode, response.Header.Get("Content-Type"), tc.code)
			}
			if tc.code == 200 {
				return
			}
			got := metav1.Status{}
			if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(metav1.Status{Status: "Failure", Message: tc.message, Reason: tc.reason, Code: int32(tc.code)}, got); diff != "" {
				t.Errorf("body (-want +got)\n%s", diff)
			}
		})
	}
}

func TestReportIsWritten(t *testing.T) {
	c := newClient(t, nil, trainJob())
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, llmPath, strings.NewReader(report))
	request.Header.Set("Authorization", "bearer  good ")
	newHandler(good, c).ServeHTTP(recorder, request)
	if recorder.Code != 200 || strings.TrimSpace(recorder.Body.String()) != report {
		t.Errorf("%d: %s", recorder.Code, recorder.Body)
	}
	job := trainJob()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	if got := job.Status.TrainerStatus; got == nil || *got.ProgressPercentage != 42 || got.LastUpdatedTime.IsZero() {
		t.Errorf("trainerStatus = %+v", got)
	}
}

func TestBearerToken(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer token": "token", "bearer token": "token", "Bearer \t token": "token", "  Bearer token  ": "token",
		"": "", "   ": "", "Bearer": "", "token": "", "Basic dXNlcjpwYXNz": "", "Bearerx token": "", "Bearer token another": "",
	} {
		request := httptest.NewRequest(http.MethodPost, "/", nil)
		request.Header.Set("Authorization", header)
		if got := bearerToken(request); got != want {
			t.Errorf("%q: token %q, want %q", header, got, want)
		}
	}
}
