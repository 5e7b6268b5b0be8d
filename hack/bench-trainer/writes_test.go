package main

import "testing"

func TestCountWrites(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="jobset.x-k8s.io",resource="jobsets",subresource="",verb="APPLY",version="v1alpha2"} 7
apiserver_request_total{code="201",group="jobset.x-k8s.io",resource="jobsets",subresource="",verb="POST",version="v1alpha2"} 2
apiserver_request_total{code="200",group="jobset.x-k8s.io",resource="jobsets",subresource="status",verb="PUT",version="v1alpha2"} 100
apiserver_request_total{code="200",group="trainer.kubeflow.org",resource="trainjobs",subresource="status",verb="PATCH",version="v1alpha1"} 1e+01
apiserver_request_total{code="200",group="trainer.kubeflow.org",resource="trainjobs",subresource="",verb="LIST",version="v1alpha1"} 1000
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST",version="v1"} 1000
apiserver_request_duration_seconds_count{resource="jobsets",subresource="",verb="APPLY"} 1000
`
	if got, err := countWrites(text); err != nil || got != 19 {
		t.Errorf("%d writes, error %v, want 19", got, err)
	}
	if _, err := countWrites(`apiserver_request_total{resource="jobsets",subresource="",verb="POST"} many`); err == nil {
		t.Error("no error")
	}
}
