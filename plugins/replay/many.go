package replay

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Compare runs policies on a trace, as many at a time as there are processors where they do not need other feature gates
// than the others, and returns the results in the order of the policies. report, if set, is told how far each is.
func Compare(ctx context.Context, trace *Trace, policies []Policy, settings Settings, report func(policy string, part float64, done *Result)) ([]Result, error) {
	results := make([]Result, len(policies))
	var native []int
	one := func(ctx context.Context, i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := settings
		s.Context = ctx
		if report != nil {
			s.Progress = func(part float64) { report(policies[i].Name, part, nil) }
		}
		var err error
		if results[i], err = Run(trace, policies[i], s); err != nil {
			return err
		}
		if report != nil {
			report(policies[i].Name, 1, &results[i])
		}
		return nil
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range policies {
		if p.native {
			native = append(native, i)
			continue
		}
		group.Go(func() error { return one(inGroup, i) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, i := range native {
		if err := one(ctx, i); err != nil {
			return nil, err
		}
	}
	return results, nil
}
