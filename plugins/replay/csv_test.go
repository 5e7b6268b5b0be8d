package replay

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var small = Shape{Nodes: 4, GPUsPerNode: 8, NodesPerRack: 2, RacksPerBlock: 1}

func TestReadCSV(t *testing.T) {
	in := `# two jobs
submit,job,duration,gpus,pods,limit
60.5, b, 3600, 8, 2, 7200
0,a,1,1,1,
`
	got, err := ReadCSV(strings.NewReader(in), "jobs.csv", small)
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{Name: "a", Pods: 1, GPUs: 1, Duration: time.Second},
		{Name: "b", Submit: 60*time.Second + 500*time.Millisecond, Pods: 2, GPUs: 8, Duration: time.Hour, Limit: 2 * time.Hour},
	}
	if diff := cmp.Diff(want, got.Jobs); diff != "" {
		t.Error(diff)
	}
	if want := 60*time.Second + 500*time.Millisecond; got.Length != want {
		t.Errorf("length %v, want %v", got.Length, want)
	}
}

func TestReadCSVNamesLineAndField(t *testing.T) {
	const header = "job,submit,pods,gpus,duration,priority,limit\n"
	for name, c := range map[string]struct{ in, want string }{
		"empty":             {"", "x.csv: it is empty; the first line names the columns: job,submit,pods,gpus,duration,priority,limit"},
		"no jobs":           {header, "x.csv: there are no jobs in it"},
		"unknown column":    {"job,cpus\n", `x.csv:1: there is no column "cpus"; there are job, submit, pods, gpus, duration, priority, limit`},
		"column twice":      {"job,job\n", `x.csv:1: column "job" is there twice`},
		"column missing":    {"job,submit,pods,gpus\n", `x.csv:1: column "duration" is missing`},
		"fields missing":    {header + "a,0,1\n", "x.csv: record on line 2: wrong number of fields"},
		"name":              {header + "A b,0,1,1,5,,\n", `x.csv:2: field "job": "A b" is no name: `},
		"same name":         {header + "a,0,1,1,5,,\n\n# again\na,0,1,1,5,,\n", `x.csv:5: field "job": line 2 has the same`},
		"submit":            {header + "a,-1,1,1,5,,\n", `x.csv:2: field "submit": "-1" is no number of seconds from 0 to 315360000`},
		"not a number":      {header + "a,NaN,1,1,5,,\n", `x.csv:2: field "submit": "NaN" is no number of seconds`},
		"pods":              {header + "a,0,0,1,5,,\n", `x.csv:2: field "pods": "0" is no integer from 1 to 1000000`},
		"gpus":              {header + "a,0,1,9,5,,\n", `x.csv:2: field "gpus": "9" is no integer from 1 to 8`},
		"never fits":        {header + "a,0,5,8,5,,\n", `x.csv:2: field "pods": 5 pods of 8 GPUs never fit; the cluster has room for 4`},
		"no duration":       {header + "a,0,1,1,,,\n", `x.csv:2: field "duration": "" is no number of seconds`},
		"duration of zero":  {header + "a,0,1,1,0,,\n", `x.csv:2: field "duration": must be more than 0 seconds`},
		"priority":          {header + "a,0,1,1,5,high,\n", `x.csv:2: field "priority": "high" is no integer up to 1000000000`},
		"limit":             {header + "a,0,1,1,5,,soon\n", `x.csv:2: field "limit": "soon" is no number of seconds`},
		"quotes":            {header + "\"a,0,1,1,5,,\n", "x.csv: "},
		"the first problem": {header + "a,x,0,1,5,,\n", `x.csv:2: field "submit"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadCSV(strings.NewReader(c.in), "x.csv", small)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// Whatever a file says: it is refused, or what it says is sound and is written as it was read.
func FuzzReadCSV(f *testing.F) {
	f.Add("job,submit,pods,gpus,duration\na,0,1,1,5\n")
	f.Add("gpus,pods,job,duration,submit,limit,priority\n8,2,b,1e3,0.25,2000,-5\n1,1,c,1,0,,\n")
	f.Add("job,submit,pods,gpus,duration\n\"a\n")
	f.Fuzz(func(t *testing.T, in string) {
		first, err := ReadCSV(strings.NewReader(in), "x.csv", small)
		if err != nil {
			return
		}
		if err := first.Validate(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := first.WriteCSV(&out); err != nil {
			t.Fatal(err)
		}
		second, err := ReadCSV(&out, "x.csv", small)
		if err != nil {
			t.Fatal(err)
		}
		for i := range second.Jobs {
			// A number of seconds is a fraction of two: the last nanosecond may be lost.
			for _, d := range []struct{ a, b *time.Duration }{
				{&first.Jobs[i].Submit, &second.Jobs[i].Submit}, {&first.Jobs[i].Duration, &second.Jobs[i].Duration}, {&first.Jobs[i].Limit, &second.Jobs[i].Limit},
			} {
				if diff := (*d.a - *d.b).Abs(); diff > 100*time.Nanosecond {
					t.Fatalf("%v became %v", *d.a, *d.b)
				}
				*d.b = *d.a
			}
		}
		if diff := cmp.Diff(first.Jobs, second.Jobs); diff != "" {
			t.Error(diff)
		}
	})
}
