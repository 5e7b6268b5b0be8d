// Command bench runs Kubernetes' scheduler_perf with Muster and its peers on the same cases, one process at a
// time. The command in the folder report makes tables and plots of what they left.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-sched/muster/hack/bench/workload"
)

type options struct {
	folder            string
	binaries          binaries
	full              bool
	runs              int
	nodes             int
	cases, schedulers *regexp.Regexp
}

func main() {
	var o options
	flag.StringVar(&o.folder, "out", "bin/bench", "folder for what the runs leave; it is emptied first")
	main := flag.String("main", "bin/perf.test", "test binary with Muster and Kubernetes' own schedulers")
	peers := flag.String("peers", "", "test binaries of peers, as name=file, separated by commas")
	etcd := flag.String("etcd", "bin", "folder with the program etcd")
	flag.BoolVar(&o.full, "full", false, "run all cases, not only the small set")
	flag.IntVar(&o.runs, "runs", 1, "how often to run each")
	flag.IntVar(&o.nodes, "nodes", 0, "nodes of every cluster, for a quick look; 0 for as many as the case wants")
	cases := flag.String("cases", ".", "regular expression of the cases to run")
	schedulers := flag.String("schedulers", ".", "regular expression of the schedulers to run")
	flag.Parse()
	if err := o.complete(*main, *peers, *etcd, *cases, *schedulers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// complete takes in the flags that are more than a value.
func (o *options) complete(main, peers, etcd, cases, schedulers string) (err error) {
	o.binaries.tests = map[string]string{}
	for name, file := range parsePeers("main=" + main + "," + peers) {
		if o.binaries.tests[name], err = filepath.Abs(file); err != nil {
			return err
		}
	}
	if o.binaries.etcd, err = filepath.Abs(etcd); err != nil {
		return err
	}
	if o.cases, err = regexp.Compile(cases); err != nil {
		return fmt.Errorf("-cases: %w", err)
	}
	if o.schedulers, err = regexp.Compile(schedulers); err != nil {
		return fmt.Errorf("-schedulers: %w", err)
	}
	return nil
}

func parsePeers(list string) map[string]string {
	peers := map[string]string{}
	for _, entry := range strings.Split(list, ",") {
		if name, file, ok := strings.Cut(entry, "="); ok {
			peers[name] = file
		}
	}
	return peers
}

// pair is one scheduler on one case.
type pair struct {
	workload.Case
	workload.Scheduler
}

// pairs lists what is to be run: all schedulers on a case one after another, so that they meet the machine in the
// same state as far as that goes.
func (o *options) pairs() []pair {
	var pairs []pair
	for _, c := range workload.Cases() {
		if o.nodes > 0 {
			c.Nodes = o.nodes
		}
		for _, s := range workload.Schedulers() {
			if o.wants(&c, &s) {
				pairs = append(pairs, pair{c, s})
			}
		}
	}
	return pairs
}

// wants reports whether a scheduler is to be run on a case.
func (o *options) wants(c *workload.Case, s *workload.Scheduler) bool {
	if _, built := o.binaries.tests[s.Binary]; !built {
		return false
	}
	return s.Runs(c) && (o.full || slices.Contains(c.Small, s.Name)) && o.cases.MatchString(c.Name) && o.schedulers.MatchString(s.Name)
}

func (o *options) run(ctx context.Context) error {
	pairs := o.pairs()
	if len(pairs) == 0 {
		return fmt.Errorf("no case and scheduler of these names; the cases are %s", strings.Join(names(), ", "))
	}
	if err := os.RemoveAll(o.folder); err != nil {
		return err
	}
	failed, started := 0, time.Now()
	for i := range o.runs {
		for j, p := range pairs {
			fmt.Printf("%4.0fs  %d of %d: %s, %s ... ", time.Since(started).Seconds(), i*len(pairs)+j+1, o.runs*len(pairs), p.Case.Name, p.Scheduler.Name)
			folder := strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", p.Case.Name, p.Scheduler.Name, i), " ", "-")
			seen, err := measure(ctx, o.binaries, p.Case, p.Scheduler, filepath.Join(o.folder, folder))
			if ctx.Err() != nil {
				fmt.Println()
				return ctx.Err()
			}
			if err != nil {
				failed++
				fmt.Println(err)
				continue
			}
			fmt.Printf("%.1f pods/s, a gang in %.2f s (median)\n", float64(seen.Pods)/seen.Seconds, workload.Quantile(seen.GangSeconds, 0.5))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs have no figures", failed, o.runs*len(pairs))
	}
	return nil
}

func names() []string {
	var names []string
	for _, c := range workload.Cases() {
		names = append(names, c.Name)
	}
	return names
}
