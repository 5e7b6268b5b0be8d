package replay

import (
	"testing"
	"time"
)

// A month of 2,000 GPUs is to take less than a minute.
func BenchmarkMonth(b *testing.B) {
	for _, mix := range Mixes() {
		trace := mix.Generate(GeneratorOptions{Shape: DefaultShape, Length: month, Seed: 1, Scale: 1})
		for _, policy := range []string{"muster", "native", "coscheduling", "no-gang"} {
			b.Run(mix.Name+"/"+policy, func(b *testing.B) {
				for b.Loop() {
					began := time.Now()
					mustRun(b, trace, policy, DefaultSettings)
					b.ReportMetric(float64(len(trace.Jobs))/time.Since(began).Seconds(), "jobs/s")
				}
			})
		}
	}
}
