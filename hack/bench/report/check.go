package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// guarded are the figures that the regression guard compares, each with the part by which its ratio to the ceiling
// may fall without being more than noise. They are for a machine that does nothing else: on a busy one the ratio of
// throughputs varied by a quarter, that of deciding, which is CPU and not time, by a tenth.
var guarded = []struct {
	metric
	noise float64

	// inverse is set if less is better: the ratio is then the ceiling's figure to Muster's.
	inverse bool
}{
	{metric: throughput, noise: 0.15},
	{metric: deciding, noise: 0.3, inverse: true},
}

// baseline is ratios to the ceiling, by case, scheduler and figure. More is better in all of them.
type baseline map[string]map[string]map[string]float64

// ratios are those of a measurement.
func ratios(all []summary) baseline {
	out := baseline{}
	for i := range all {
		s := &all[i]
		ceiling := find(all, workload.Ceiling, s.Case.Name)
		if ceiling == nil || s.Scheduler.Name == workload.Ceiling || !strings.HasPrefix(s.Scheduler.Name, workload.Ours) {
			continue
		}
		values := map[string]float64{}
		for _, g := range guarded {
			value := ratio(s.value(g.metric), ceiling.value(g.metric))
			if g.inverse {
				value = ratio(ceiling.value(g.metric), s.value(g.metric))
			}
			values[g.unit] = float64(int(100*value+0.5)) / 100
		}
		if out[s.Case.Name] == nil {
			out[s.Case.Name] = map[string]map[string]float64{}
		}
		out[s.Case.Name][s.Scheduler.Name] = values
	}
	return out
}

// regressions lists in words what fell below the baseline by more than noise, and what was compared.
func regressions(wanted, got baseline) (worse []string, compared int) {
	for _, of := range slices.Sorted(maps.Keys(wanted)) {
		for _, scheduler := range slices.Sorted(maps.Keys(wanted[of])) {
			for _, g := range guarded {
				want, have := wanted[of][scheduler][g.unit], got[of][scheduler][g.unit]
				if want == 0 || have == 0 {
					continue // not in the baseline, or not measured
				}
				compared++
				if least := want * (1 - g.noise); have < least {
					worse = append(worse, fmt.Sprintf("%s, %s, %s: the ratio to the ceiling is %.2f, less than %.2f (%.2f without noise)",
						of, scheduler, g.unit, have, least, want))
				}
			}
		}
	}
	return worse, compared
}

// checkBaseline compares a measurement with a file of ratios.
func checkBaseline(file string, all []summary) error {
	var wanted baseline
	if err := read(file, &wanted); err != nil {
		return err
	}
	worse, compared := regressions(wanted, ratios(all))
	if compared == 0 {
		return fmt.Errorf("-check: %s has nothing that was measured", file)
	}
	if len(worse) > 0 {
		return fmt.Errorf("slower than the baseline:\n  %s", strings.Join(worse, "\n  "))
	}
	fmt.Printf("%d ratios to the ceiling are no lower than in %s, but for noise\n", compared, file)
	return nil
}

// writeBaseline writes the ratios of a measurement to a file.
func writeBaseline(file string, all []summary) error {
	return writeJSON(file, ratios(all))
}

func writeJSON(file string, what any) error {
	data, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
