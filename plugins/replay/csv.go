package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The columns of a trace in CSV, in any order; those from priority on may be missing.
var columns = []string{"job", "submit", "pods", "gpus", "duration", "priority", "limit"}

const needed = 5

// ReadCSV reads the jobs of a trace: a header with the names of the columns, then one line for each job. An error names the
// line and the field. Times are seconds, from the beginning of the trace, and may have a fraction. docs/replay.md
// describes it.
func ReadCSV(from io.Reader, name string, shape Shape) (*Trace, error) {
	reader := csv.NewReader(from)
	reader.Comment = '#'
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it is empty; the first line names the columns: %s", name, strings.Join(columns, ","))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	place, err := placesOf(header)
	if err != nil {
		line, _ := reader.FieldPos(0)
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	t := &Trace{Name: name, Shape: shape}
	seen := map[string]int{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := reader.FieldPos(0)
		r := row{record: record, place: place}
		j := r.job(shape)
		if first := seen[j.Name]; first > 0 && r.err == nil {
			r.fail("job", fmt.Sprintf("line %d has the same", first))
		}
		if r.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, r.err)
		}
		seen[j.Name] = line
		t.Jobs = append(t.Jobs, j)
	}
	if len(t.Jobs) == 0 {
		return nil, fmt.Errorf("%s: there are no jobs in it", name)
	}
	t.sort()
	t.Length = max(t.Jobs[len(t.Jobs)-1].Submit, time.Second)
	return t, t.Validate()
}

// placesOf returns where each column is.
func placesOf(header []string) (map[string]int, error) {
	place := map[string]int{}
	for i, h := range header {
		h = strings.ToLower(strings.TrimSpace(h))
		if !slices.Contains(columns, h) {
			return nil, fmt.Errorf("there is no column %q; there are %s", h, strings.Join(columns, ", "))
		}
		if _, twice := place[h]; twice {
			return nil, fmt.Errorf("column %q is there twice", h)
		}
		place[h] = i
	}
	for _, c := range columns[:needed] {
		if _, ok := place[c]; !ok {
			return nil, fmt.Errorf("column %q is missing", c)
		}
	}
	return place, nil
}

// row is a line of a CSV, and the first error in it.
type row struct {
	record []string
	place  map[string]int
	err    error
}

func (r *row) fail(column, problem string) {
	if r.err == nil {
		r.err = fmt.Errorf("field %q: %s", column, problem)
	}
}

// text returns a field, "" if its column is missing.
func (r *row) text(column string) string {
	i, ok := r.place[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.record[i])
}

func (r *row) job(shape Shape) Job {
	j := Job{
		Name: r.text("job"), Submit: r.seconds("submit", true),
		Pods: r.count("pods", 1_000_000), GPUs: r.count("gpus", shape.GPUsPerNode),
		Duration: r.seconds("duration", true), Limit: r.seconds("limit", false),
	}
	if problems := validation.IsDNS1123Label(j.Name); len(problems) > 0 {
		r.fail("job", fmt.Sprintf("%q is no name: %s", j.Name, problems[0]))
	}
	if r.err == nil && j.Duration == 0 {
		r.fail("duration", "must be more than 0 seconds")
	}
	if s := r.text("priority"); s != "" {
		p, err := strconv.ParseInt(s, 10, 32)
		if err != nil || p > 1_000_000_000 {
			r.fail("priority", fmt.Sprintf("%q is no integer up to 1000000000", s))
		}
		j.Priority = int32(p)
	}
	if most := shape.Nodes * (shape.GPUsPerNode / max(j.GPUs, 1)); r.err == nil && j.Pods > most {
		r.fail("pods", fmt.Sprintf("%d pods of %d GPUs never fit; the cluster has room for %d", j.Pods, j.GPUs, most))
	}
	return j
}

func (r *row) count(column string, most int) int {
	s := r.text(column)
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		r.fail(column, fmt.Sprintf("%q is no integer from 1 to %d", s, most))
	}
	return n
}

// longest is more than any trace needs: ten years.
const longest = 10 * 365 * 24 * time.Hour

func (r *row) seconds(column string, required bool) time.Duration {
	s := r.text(column)
	if s == "" && !required {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f <= longest.Seconds()) {
		r.fail(column, fmt.Sprintf("%q is no number of seconds from 0 to %.0f", s, longest.Seconds()))
		return 0
	}
	return time.Duration(f * float64(time.Second))
}

// WriteCSV writes the jobs of a trace as ReadCSV reads them.
func (t *Trace) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	if err := w.Write(columns); err != nil {
		return err
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	for _, j := range t.Jobs {
		if err := w.Write([]string{
			j.Name, seconds(j.Submit), strconv.Itoa(j.Pods), strconv.Itoa(j.GPUs), seconds(j.Duration), strconv.Itoa(int(j.Priority)), seconds(j.Limit),
		}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
