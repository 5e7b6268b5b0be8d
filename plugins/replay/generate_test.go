package replay

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

const month = 30 * 24 * time.Hour

func statistics(t *Trace) (meanSize, meanSeconds, median float64, jobs int) {
	var seconds []float64
	for _, j := range t.Jobs {
		if j.Underway {
			continue
		}
		jobs++
		meanSize += float64(j.Size())
		meanSeconds += j.Duration.Seconds()
		seconds = append(seconds, j.Duration.Seconds())
	}
	slices.Sort(seconds)
	return meanSize / float64(jobs), meanSeconds / float64(jobs), seconds[jobs/2], jobs
}

func between(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %.4g, want %.4g to %.4g", what, got, low, high)
	}
}

// The mix has the numbers that were published of Philly, within the bounds that are stated here.
func TestPhillyIsLikePhilly(t *testing.T) {
	trace := philly.Generate(GeneratorOptions{Shape: DefaultShape, Length: 12 * month, Seed: 7, Scale: 1})
	if err := trace.Validate(); err != nil {
		t.Fatal(err)
	}
	size, seconds, median, jobs := statistics(trace)
	between(t, "mean GPUs, published 1.75", size, 1.65, 1.85)
	between(t, "mean duration in seconds, published 28,329", seconds, 24000, 32000)
	between(t, "median duration in seconds, published 1,186", median, 900, 1400)
	between(t, "jobs a day and GPU, published 0.50, times our load", float64(jobs)/360/2000, 0.5*phillyBusier*0.97, 0.5*phillyBusier*1.03)
	longest, largest := time.Duration(0), 0
	for _, j := range trace.Jobs {
		longest, largest = max(longest, j.Duration), max(largest, j.Size())
	}
	between(t, "longest run in days, published 60", longest.Hours()/24, 50, 60)
	between(t, "largest job, published 128", float64(largest), 128, 128)
}

// So has the other one those of Kalos.
func TestLLMIsLikeKalos(t *testing.T) {
	trace := llm.Generate(GeneratorOptions{Shape: DefaultShape, Length: 36 * month, Seed: 7, Scale: 1})
	if err := trace.Validate(); err != nil {
		t.Fatal(err)
	}
	size, _, median, jobs := statistics(trace)
	between(t, "mean GPUs, published 26.8 on 2,416, that is 22.2 on 2,000", size, 19, 25.5)
	between(t, "median duration in seconds, published 2 minutes", median, 90, 180)
	between(t, "jobs a day and GPU, published 0.045", float64(jobs)/36/30/2000, 0.043, 0.048)
	count, work := map[string]float64{}, map[string]float64{}
	total := 0.0
	for _, j := range trace.Jobs {
		kind := j.Name[:len(j.Name)-len("-000000")]
		w := float64(j.Size()) * j.Duration.Seconds()
		if !j.Underway {
			count[kind]++
			work[kind] += w
			total += w
		}
	}
	between(t, "part of the jobs that evaluate, published 92.9 %", count["evaluation"]/float64(jobs), 0.92, 0.94)
	between(t, "part of the jobs that pretrain, published 3.2 %", count["pretraining"]/float64(jobs), 0.028, 0.036)
	between(t, "part of the work that is pretraining, published 94.0 %", work["pretraining"]/total, 0.91, 0.96)
	between(t, "part of the work that is evaluation, published 0.8 %", work["evaluation"]/total, 0.005, 0.012)
}

// Nodes fail as often as Llama 3's did: 419 times in 54 days among 16,384 GPUs.
func TestFailuresAreLikeLlamas(t *testing.T) {
	shape := Shape{Nodes: 2048, GPUsPerNode: 8, NodesPerRack: 16, RacksPerBlock: 8}
	trace := &Trace{Shape: shape, Length: 540 * 24 * time.Hour}
	trace.Fail(3, llamaFailures)
	between(t, "failures in ten times 54 days", float64(len(trace.Failures)), 4190*0.95, 4190*1.05)
}

func TestGenerateRepeats(t *testing.T) {
	for _, m := range Mixes() {
		var first, second, other bytes.Buffer
		for seed, to := range map[uint64][]*bytes.Buffer{1: {&first, &second}, 2: {&other}} {
			for _, b := range to {
				if err := m.Generate(GeneratorOptions{Shape: DefaultShape, Length: 48 * time.Hour, Seed: seed, Scale: 1}).WriteCSV(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		if first.String() != second.String() {
			t.Errorf("%s: the same seed gave two traces", m.Name)
		}
		if first.String() == other.String() {
			t.Errorf("%s: two seeds gave the same trace", m.Name)
		}
	}
}
