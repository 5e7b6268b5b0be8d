package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	// The format that plots are saved in.
	_ "gonum.org/v1/plot/vg/vgsvg"

	"github.com/muster-sched/muster/hack/bench/workload"
)

const plotWidth, plotHeight = 6 * vg.Inch, 4 * vg.Inch

// curve is a plot of the cost of a decision over cases that differ in one number.
type curve struct {
	file, title, axis string
	cases             []string
	of                func(workload.Case) int
}

var curves = []curve{
	{
		file: "cost-against-nodes", title: "1,000 gangs of 3", axis: "nodes",
		cases: []string{"gang-1000x3-1000-nodes", "gang-1000x3", "gang-1000x3-15000-nodes"},
		of:    func(c workload.Case) int { return c.Nodes },
	},
	{
		file: "cost-against-gang-size", title: "3,000 members on 5,000 nodes", axis: "members of a gang",
		cases: []string{"gang-1000x3", "gang-100x30", "gang-10x300", "gang-3x1000"},
		of:    func(c workload.Case) int { return c.Gangs[0].Size },
	},
	{
		file: "cost-against-queue", title: "100 gangs that fit, while others wait", axis: "gangs that wait",
		cases: []string{"gpu-waiting-0", "gpu-waiting-500", "gpu-waiting-2000"},
		of:    func(c workload.Case) int { return c.Waiting.Count },
	},
}

// drawPlots writes those plots for which a scheduler has at least two points, and returns their files.
func drawPlots(folder string, all []summary) ([]string, error) {
	var files []string
	for _, c := range curves {
		lines := c.lines(all)
		if len(lines) == 0 {
			continue
		}
		file := filepath.Join(folder, c.file+".svg")
		if err := c.draw(file, lines); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// line is the points of one scheduler.
type line struct {
	scheduler string
	points    plotter.XYs
}

func (c *curve) lines(all []summary) []line {
	var lines []line
	for _, scheduler := range schedulerNames() {
		l := line{scheduler: scheduler}
		for _, name := range c.cases {
			if s := find(all, scheduler, name); s.value(deciding) > 0 {
				l.points = append(l.points, plotter.XY{X: float64(c.of(s.Case)), Y: s.value(deciding)})
			}
		}
		if len(l.points) > 1 {
			lines = append(lines, l)
		}
	}
	return lines
}

func (c *curve) draw(file string, lines []line) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.axis, "CPU for deciding, ms per pod"
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	largest := 0.0
	for i, l := range lines {
		drawn, points, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return err
		}
		drawn.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(drawn, points)
		p.Legend.Add(l.scheduler, drawn, points)
		largest = math.Max(largest, slices.MaxFunc(l.points, func(a, b plotter.XY) int { return int(math.Copysign(1, a.Y-b.Y)) }).Y)
	}
	p.Y.Max = 1.4 * largest // room for the legend
	return p.Save(plotWidth, plotHeight, file)
}
