package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-sched/muster/plugins/replay"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	traces, policies []string
	days, scale      float64
	seed             uint64
	shape            replay.Shape
	settings         replay.Settings
	failures         float64
	output, report   string
	write            string
}

func newSimulateCommand() *cobra.Command {
	o := simulateOptions{shape: replay.DefaultShape, settings: replay.DefaultSettings}
	var about strings.Builder
	about.WriteString("Run traces of training jobs under several schedulers on a simulated cluster and clock, and compare what becomes of the\njobs and of the GPUs. No cluster is needed, and none is touched.\n\nTraces:\n")
	for _, m := range replay.Mixes() {
		fmt.Fprintf(&about, "  %-20s %s\n", m.Name, m.Summary)
	}
	fmt.Fprintf(&about, "  %-20s %s\n\nPolicies:\n", "FILE.csv", "jobs of your own: job,submit,pods,gpus,duration and if you like priority,limit")
	for _, p := range replay.Policies() {
		fmt.Fprintf(&about, "  %-20s %s\n", p.Name, p.Summary)
	}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare schedulers on a trace of training jobs",
		Long:  about.String(),
		Example: `  # a small cluster for two days
  kubectl muster simulate --trace llm --days 2 --nodes 64

  # your own jobs, under two policies
  kubectl muster simulate --trace jobs.csv --policy muster,native`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.traces, "trace", []string{"philly", "llm"}, "built-in traces and CSV files")
	f.StringSliceVar(&o.policies, "policy", nil, "policies to compare (default all)")
	f.Float64Var(&o.days, "days", 30, "length of a built-in trace, in days")
	f.Float64Var(&o.scale, "scale", 1, "how many jobs come to a built-in trace, as a multiple of its default")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the built-in traces and of failures")
	f.IntVar(&o.shape.Nodes, "nodes", o.shape.Nodes, "nodes of the cluster")
	f.IntVar(&o.shape.GPUsPerNode, "gpus-per-node", o.shape.GPUsPerNode, "GPUs of each node")
	f.IntVar(&o.shape.NodesPerRack, "nodes-per-rack", o.shape.NodesPerRack, "nodes of each rack")
	f.IntVar(&o.shape.RacksPerBlock, "racks-per-block", o.shape.RacksPerBlock, "racks of each block")
	f.Float64Var(&o.failures, "failures", -1, "failures of nodes per GPU and day; below 0, those of the built-in trace, and none for a file")
	f.DurationVar(&o.settings.Rendezvous, "rendezvous-timeout", o.settings.Rendezvous, "how long members wait for the others before their job starts again; 0 for ever")
	f.DurationVar(&o.settings.Checkpoint, "checkpoint-interval", o.settings.Checkpoint, "how often jobs save their progress; 0 for never")
	f.StringVarP(&o.output, "output", "o", "table", "table, markdown or json")
	f.StringVar(&o.report, "report", "", "also write the tables to this file, as Markdown")
	f.StringVar(&o.write, "write-trace", "", "write the jobs of the trace to this CSV file and simulate nothing")
	return cmd
}

// document is what is written as JSON.
type document struct {
	Cluster replay.Shape    `json:"cluster"`
	Results []replay.Result `json:"results"`
	Aims    []replay.Aim    `json:"aims"`
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	switch o.output {
	case "table", "markdown", "json":
	default:
		return fmt.Errorf("there is no output %q; there are table, markdown and json", o.output)
	}
	policies, err := replay.PoliciesNamed(o.policies...)
	if err != nil {
		return err
	}
	var traces []*replay.Trace
	for _, name := range o.traces {
		t, err := o.trace(name)
		if err != nil {
			return err
		}
		traces = append(traces, t)
	}
	if o.write != "" {
		return o.writeTrace(traces)
	}
	if os.Getenv("GOGC") == "" {
		// The live objects are few beside those that come and go: memory is cheaper here than looking for what is left.
		debug.SetGCPercent(400)
	}
	doc := document{Cluster: o.shape}
	out := cmd.OutOrStdout()
	var report bytes.Buffer
	for _, t := range traces {
		p := newProgress(cmd.ErrOrStderr(), t.Name, len(policies))
		results, err := replay.Compare(cmd.Context(), t, policies, o.settings, p.report)
		p.clear()
		if err != nil {
			return err
		}
		doc.Results = append(doc.Results, results...)
		if o.report != "" {
			if err := o.print(&report, "markdown", t, results); err != nil {
				return err
			}
		}
		if o.output == "json" {
			continue
		}
		if err := o.print(out, o.output, t, results); err != nil {
			return err
		}
	}
	if o.report != "" {
		if err := os.WriteFile(o.report, report.Bytes(), 0o644); err != nil {
			return err
		}
	}
	doc.Aims = replay.Aims(doc.Results)
	if o.output != "json" {
		return nil
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

func (o *simulateOptions) print(out io.Writer, format string, t *replay.Trace, results []replay.Result) error {
	fmt.Fprintf(out, "%s: %d jobs in %.1f days, %d nodes of %d GPUs, %d node failures; load %.2f (the GPUs that the jobs would use if none waited, while jobs come); "+
		"mean run time %.2f h (no mean JCT can be shorter)\n\n",
		t.Name, len(t.Jobs), t.Length.Hours()/24, t.Shape.Nodes, t.Shape.GPUsPerNode, len(t.Failures), t.Load(), results[0].Run/3600)
	if format == "markdown" {
		if err := replay.WriteMarkdown(out, results); err != nil {
			return err
		}
		fmt.Fprintln(out, "\nMean delay by the size of jobs:")
		fmt.Fprintln(out)
		if err := replay.WriteSizes(out, results); err != nil {
			return err
		}
		fmt.Fprintln(out)
		if aims := replay.Aims(results); len(aims) > 0 {
			if err := replay.WriteAimsTable(out, aims); err != nil {
				return err
			}
			fmt.Fprintln(out)
		}
		return nil
	}
	if err := replay.WriteTable(out, results); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := replay.WriteAims(out, replay.Aims(results)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// trace makes a built-in trace or reads one.
func (o *simulateOptions) trace(name string) (*replay.Trace, error) {
	if err := o.shape.Validate(); err != nil {
		return nil, err
	}
	if !(o.days > 0 && o.days <= 3650) || !(o.scale > 0 && o.scale <= 1000) {
		return nil, fmt.Errorf("--days must be above 0 and up to 3650, --scale above 0 and up to 1000")
	}
	mix, err := replay.LookUpMix(name)
	if err == nil {
		t := mix.Generate(replay.GeneratorOptions{
			Shape: o.shape, Length: time.Duration(o.days * 24 * float64(time.Hour)), Seed: o.seed, Scale: o.scale,
		})
		if o.failures >= 0 {
			t.Fail(o.seed, o.failures)
		}
		return t, nil
	}
	if !strings.HasSuffix(name, ".csv") {
		return nil, fmt.Errorf("%w; a file's name ends with .csv", err)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := replay.ReadCSV(file, name, o.shape)
	if err == nil && o.failures > 0 {
		t.Fail(o.seed, o.failures)
	}
	return t, err
}

func (o *simulateOptions) writeTrace(traces []*replay.Trace) error {
	if len(traces) != 1 {
		return fmt.Errorf("--write-trace writes one trace; choose it with --trace")
	}
	file, err := os.Create(o.write)
	if err != nil {
		return err
	}
	if err := traces[0].WriteCSV(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// progress shows on a terminal how far the policies are, and otherwise says when one is done.
type progress struct {
	mu       sync.Mutex
	to       io.Writer
	trace    string
	policies int
	parts    map[string]float64
	terminal bool
	began    time.Time
}

func newProgress(to io.Writer, trace string, policies int) *progress {
	file, ok := to.(*os.File)
	return &progress{to: to, trace: trace, policies: policies, parts: map[string]float64{}, terminal: ok && term.IsTerminal(int(file.Fd())), began: time.Now()}
}

func (p *progress) report(policy string, part float64, done *replay.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[policy] = part
	if !p.terminal {
		if done != nil {
			fmt.Fprintf(p.to, "%s: %s took %.1f s\n", p.trace, policy, done.Took.Seconds())
		}
		return
	}
	sum := 0.0
	for _, part := range p.parts {
		sum += part
	}
	fmt.Fprintf(p.to, "\r\033[K%s: %.0f %% of %d policies after %v", p.trace, 100*sum/float64(p.policies), p.policies, time.Since(p.began).Round(time.Second))
}

func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.to, "\r\033[K")
	}
}
