package workload

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

const (
	// Namespace is where the gangs are, WaitingNamespace where those that wait meanwhile are.
	Namespace, WaitingNamespace = "gangs-0", "waiting-0"

	// GangLabel is a label of all members, whatever the dialect, that names their gang.
	GangLabel = "bench/gang"
)

// Run is one scheduler on one case.
type Run struct {
	Case      Case
	Scheduler Scheduler

	// Files is the folder of the configuration files.
	Files string
}

// Members are the gangs of one kind, for the templates.
type Members struct {
	Run
	Gangs

	// Kind tells them from other gangs of the case, in names too.
	Kind string

	// Namespace of the gangs.
	Namespace string
}

// GroupName is the name of a gang.
func (m Members) GroupName(gang int) string {
	return fmt.Sprintf("gang-%s-%d", m.Kind, gang)
}

// Pods is how many members the gangs of this kind have together.
func (m Members) Pods() int { return m.Count * m.Size }

// Kinds lists the kinds of gangs of the case that are observed.
func (r Run) Kinds() []Members {
	var kinds []Members
	for i, g := range r.Case.Gangs {
		kinds = append(kinds, Members{Run: r, Gangs: g, Kind: fmt.Sprint(i), Namespace: Namespace})
	}
	return kinds
}

// Waiting is the gangs that wait meanwhile, none or one kind.
func (r Run) Waiting() []Members {
	if r.Case.Waiting.Count == 0 {
		return nil
	}
	return []Members{{Run: r, Gangs: r.Case.Waiting, Kind: "waiting", Namespace: WaitingNamespace}}
}

// WriteFiles writes what a process needs for a run to a folder: scheduler_perf's configuration with all that it
// names, and the run itself.
func WriteFiles(c Case, s Scheduler, folder string) (Run, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Run{}, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return Run{}, err
	}
	run := Run{Case: c, Scheduler: s, Files: folder}
	data, err := json.Marshal(run)
	if err != nil {
		return Run{}, err
	}
	if err := os.WriteFile(filepath.Join(folder, RunFile), data, 0o644); err != nil {
		return Run{}, err
	}
	files := map[string]any{"performance-config.yaml": run, "scheduler-config.yaml": run, NodeFile: run, "churn.yaml": run}
	for name, data := range files {
		if err := write(name, filepath.Join(folder, name), data); err != nil {
			return Run{}, err
		}
	}
	for _, kind := range slices.Concat(run.Kinds(), run.Waiting()) {
		if err := write("pod.yaml", kind.PodTemplate(), kind); err != nil {
			return Run{}, err
		}
	}
	return run, nil
}

// PodTemplate is the path of the template for the members.
func (m Members) PodTemplate() string {
	return filepath.Join(m.Files, "pod-"+m.Kind+".yaml")
}

// write fills in a template. What scheduler_perf is to fill in itself is in double brackets.
func write(name, path string, data any) error {
	t, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return err
	}
	text := strings.NewReplacer("[[", "{{", "]]", "}}").Replace(out.String())
	return os.WriteFile(path, []byte(text), 0o644)
}

// The files of a run's folder that its process reads and writes.
const (
	RunFile         = "run.json"
	CRDFile         = "crds.json"
	NodeFile        = "node.yaml"
	ObservationFile = "observation.json"
	ProfileFile     = "cpu.pprof"
	HeapFile        = "heap.pprof"
)
