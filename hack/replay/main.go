// Command replay draws what kubectl muster simulate -o json found: one SVG for each trace and measure.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// result is what is drawn of a policy's.
type result struct {
	Policy      string       `json:"policy"`
	Trace       string       `json:"trace"`
	Peer        bool         `json:"peer"`
	Delay       distribution `json:"queueingDelaySeconds"`
	Completion  distribution `json:"jobCompletionSeconds"`
	Utilisation float64      `json:"gpuUtilisation"`
	IdleHeld    float64      `json:"idleHeldGPUSeconds"`
	Fragmented  float64      `json:"fragmentation"`
	Racks       float64      `json:"racksPerGang"`
}

type distribution struct {
	Mean float64 `json:"mean"`
}

// measure is something that is drawn.
type measure struct {
	file, title string
	value       func(result) float64
}

var measures = []measure{
	{"delay", "mean queueing delay (hours)", func(r result) float64 { return r.Delay.Mean / 3600 }},
	{"completion", "mean job completion time (hours)", func(r result) float64 { return r.Completion.Mean / 3600 }},
	{"utilisation", "GPUs used (%)", func(r result) float64 { return 100 * r.Utilisation }},
	{"idle", "GPU-hours held idle by incomplete gangs", func(r result) float64 { return r.IdleHeld / 3600 }},
	{"fragmentation", "free GPUs on nodes with pods (%)", func(r result) float64 { return 100 * r.Fragmented }},
	{"racks", "racks per gang", func(r result) float64 { return r.Racks }},
}

func main() {
	in := flag.String("in", "", "what simulate -o json wrote")
	out := flag.String("out", "", "directory of the SVG files")
	tables := flag.String("tables", "", "what simulate --report wrote")
	page := flag.String("page", "", "the page that the tables go into, between its two marks")
	flag.Parse()
	file, err := os.Open(*in)
	if err == nil {
		err = drawAll(file, *out)
		file.Close()
	}
	if err == nil && *page != "" {
		err = fillIn(*page, *tables)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// The marks between which a page has the tables.
const (
	fromMark = "<!-- tables: make replay -->\n"
	toMark   = "<!-- end of tables -->\n"
)

// fillIn puts the tables between the marks of a page.
func fillIn(page, tables string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made, err := os.ReadFile(tables)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), fromMark)
	_, after, closed := strings.Cut(rest, toMark)
	if !ok || !closed {
		return fmt.Errorf("%s has no marks for tables", page)
	}
	filled := before + fromMark + strings.TrimRight(string(made), "\n") + "\n" + toMark + after
	return os.WriteFile(page, []byte(filled), 0o644)
}

// drawAll draws every measure of every trace that is read.
func drawAll(from io.Reader, dir string) error {
	var read struct {
		Results []result `json:"results"`
	}
	if err := json.NewDecoder(from).Decode(&read); err != nil {
		return fmt.Errorf("reading results: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var traces []string
	of := map[string][]result{}
	for _, r := range read.Results {
		if of[r.Trace] == nil {
			traces = append(traces, r.Trace)
		}
		of[r.Trace] = append(of[r.Trace], r)
	}
	for _, trace := range traces {
		for _, m := range measures {
			name := filepath.Join(dir, fmt.Sprintf("%s-%s.svg", filepath.Base(trace), m.file))
			if err := draw(name, trace, m, of[trace]); err != nil {
				return fmt.Errorf("drawing %s: %w", name, err)
			}
		}
	}
	return nil
}

// draw draws a bar for each policy, Muster's in another colour than the peers'.
func draw(name, trace string, m measure, results []result) error {
	p := plot.New()
	p.Title.Text = trace
	p.X.Label.Text = m.title
	p.X.Min = 0
	var labels []string
	for i := range results {
		// The first is on top.
		r := results[len(results)-1-i]
		bar, err := plotter.NewBarChart(plotter.Values{m.value(r)}, vg.Points(14))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = plotutil.Color(1)
		if r.Peer {
			bar.Color = plotutil.Color(0)
		}
		p.Add(bar)
		labels = append(labels, r.Policy)
	}
	p.NominalY(labels...)
	return p.Save(vg.Points(480), vg.Points(40+24*float64(len(results))), name)
}
