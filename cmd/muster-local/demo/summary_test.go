package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	done := &outcome{wasted: 20.49, elapsed: 22 * time.Second, completed: 3}
	stuck := &outcome{
		wasted: 2631.1, wasting: 128, elapsed: 25200 * time.Millisecond, stuck: true, completed: 1,
		holding: []string{"atlas 8 of its 12 nodes", "cedar 8 of its 12 nodes"},
	}
	if diff := cmp.Diff([]string{
		"                                               Muster   default scheduler",
		"GPU-seconds held by gangs that could not run   20.5     2631.1, and 128 more every second",
		"time until all jobs are done                   22.0 s   never: deadlock, watched for 25.2 s",
		"jobs done                                      3 of 3   1 of 3",
		"",
		"Stuck, each holding what the others need: atlas 8 of its 12 nodes, cedar 8 of its 12 nodes.",
	}, summarize(done, stuck)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	// Whatever was measured is printed as it is: nothing here knows who should win.
	if diff := cmp.Diff([]string{
		"                                               Muster                                default scheduler",
		"GPU-seconds held by gangs that could not run   0.0                                   20.5",
		"time until all jobs are done                   never: deadlock, watched for 10.0 s   22.0 s",
		"jobs done                                      0 of 3                                3 of 3",
	}, summarize(&outcome{stuck: true, elapsed: 10 * time.Second}, done)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}
