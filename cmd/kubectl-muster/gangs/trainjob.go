package gangs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// TrainJob is what an API server knows of a TrainJob.
type TrainJob struct {
	*trainer.TrainJob

	// Gangs is how many groups were made for it.
	Gangs int
}

// ofTrainJob reads a TrainJob, and then its gangs.
func ofTrainJob(ctx context.Context, reader client.Reader, key types.NamespacedName) ([]Explainer, error) {
	job := &TrainJob{TrainJob: &trainer.TrainJob{}}
	if err := reader.Get(ctx, key, job.TrainJob); err != nil {
		return nil, err
	}
	gangs, err := list(ctx, reader, key.Namespace)
	if err != nil {
		return nil, err
	}
	found := []Explainer{job}
	for _, g := range gangs {
		if g.owner != job.UID {
			continue
		}
		if err := g.readMembers(ctx, reader); err != nil {
			return nil, err
		}
		job.Gangs++
		found = append(found, g)
	}
	return found, nil
}

// Explain writes what the conditions of the TrainJob say that hold, and how far its training code says that it is.
func (j *TrainJob) Explain(w io.Writer, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "trainjob %s, made %s ago\n", client.ObjectKeyFromObject(j), ago(j.CreationTimestamp.Time, now))
	said := false
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Status == metav1.ConditionTrue {
			say(&b, c, now)
			said = true
		}
	}
	if s := j.Status.TrainerStatus; s != nil {
		b.WriteString(progress(s, now) + "\n")
	}
	if j.Gangs == 0 && !said {
		b.WriteString("it has no gang: its runtime has no podGroupPolicy, or its controller has not seen it yet\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// progress says what the training code reported.
func progress(s *trainer.TrainerStatus, now time.Time) string {
	var parts []string
	if s.ProgressPercentage != nil {
		parts = append(parts, fmt.Sprintf("%d %% done", *s.ProgressPercentage))
	}
	if s.EstimatedRemainingSeconds != nil {
		parts = append(parts, duration.HumanDuration(time.Duration(*s.EstimatedRemainingSeconds)*time.Second)+" left")
	}
	for _, m := range s.Metrics {
		parts = append(parts, m.Name+" "+m.Value)
	}
	return fmt.Sprintf("reported %s ago: %s", ago(s.LastUpdatedTime.Time, now), strings.Join(parts, ", "))
}
