package coscheduling

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestRunTime(t *testing.T) {
	const year = 365 * 24 * 3600
	for name, tc := range map[string]struct {
		deadline   int64
		template   string
		want, data string // of the training, and of the gang that fetches its data, which has no template annotations
	}{
		"no deadline":                {},
		"deadline":                   {deadline: 5400, want: "1h30m0s", data: "1h30m0s"},
		"a year":                     {deadline: year, want: "8760h0m0s", data: "8760h0m0s"},
		"more than can be said":      {deadline: year + 1},
		"beyond what a duration has": {deadline: 1 << 62},
		"template alone":             {template: "2h", want: "2h"},
		"template says less":         {deadline: 5400, template: "1h", want: "1h", data: "1h30m0s"},
		"template says more":         {deadline: 5400, template: "24h", want: "1h30m0s", data: "1h30m0s"},
		"template makes no sense":    {deadline: 5400, template: "soon", want: "soon", data: "1h30m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			of := trainJob()
			of.Spec.ActiveDeadlineSeconds = tc.deadline
			info := newInfo(t, policy, job("data", v1alpha1.AncestorDatasetInitializer, 1), job("node", "trainer", 4, "data"))
			if tc.template != "" {
				info.Annotations = map[string]string{podgroup.RunTimeAnnotation: tc.template}
			}
			objects, err := New(nil, nil, "").Build(context.Background(), info, of)
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				want := tc.want
				if object.GetName() != of.Name {
					want = tc.data
				}
				got, stated := object.(*group.PodGroup).Annotations[podgroup.RunTimeAnnotation]
				if got != want || stated != (want != "") {
					t.Errorf("%s: run time %q (stated: %t), want %q", object.GetName(), got, stated, want)
				}
				if settings, err := podgroup.ParseSettings(object.GetAnnotations()); want != "soon" && (err != nil || (settings.RunTime > 0) != (want != "")) {
					t.Errorf("%s: the scheduler reads %v, %v", object.GetName(), settings.RunTime, err)
				}
			}
		})
	}
}
