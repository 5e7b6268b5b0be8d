package flux

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// pod is a directory in the place of a pod's root, with a flux and a hostname that only record their use.
type pod struct {
	t    *testing.T
	root string
	host string
}

func newPod(t *testing.T, host string, files map[string]string) *pod {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	p := &pod{t: t, root: t.TempDir(), host: host}
	for name, content := range files {
		p.write("etc/flux-config/"+name, p.local(content), 0o755)
	}
	p.write("curve/curve.cert", "certificate", 0o444)
	p.write("opt/views/._view/abc123/bin/flux", "#!/bin/sh\n", 0o755)
	p.write("opt/views/._view/abc123/lib/python3.11/site-packages/flux.py", "", 0o644)
	p.write("opt/software/linux/hwloc", "software", 0o644)
	p.write("programs/hostname", "#!/bin/sh\necho "+host+"\n", 0o755)
	// One argument in each line; the first two calls of a broker that is not the lead's fail.
	p.write("programs/flux", `#!/bin/bash
{ echo "call"; printf '%s\n' "$@"; } >> "`+p.root+`/calls"
case "$1 $2" in
"R encode") echo resources ;;
esac
if [[ "$1" == broker && "`+host+`" != llm-node-0-0 ]]; then
  echo x >> "`+p.root+`/attempts"
  [[ $(wc -l < "`+p.root+`/attempts") -ge 3 ]]
fi
`, 0o755)
	p.write("programs/sleep", "#!/bin/sh\n", 0o755)
	return p
}

// local puts absolute paths into the pod's directory.
func (p *pod) local(text string) string {
	for _, path := range []string{"/mnt/flux", "/etc/flux-config", "/opt/", "/curve/"} {
		text = strings.ReplaceAll(text, path, p.root+path)
	}
	// What was replaced inside another path.
	return strings.ReplaceAll(text, "/etc"+p.root+"/curve/", "/etc/curve/")
}

func (p *pod) write(name, content string, mode os.FileMode) {
	p.t.Helper()
	file := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) read(name string) string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.root, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(content)
}

func (p *pod) run(command ...string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), command[0], command[1:]...)
	cmd.Env = []string{"PATH=" + filepath.Join(p.root, "programs") + ":" + os.Getenv("PATH")}
	if output, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%q: %v\n%s", command, err, output)
	}
}

// calls returns the arguments of each call of flux.
func (p *pod) calls() [][]string {
	p.t.Helper()
	var calls [][]string
	for _, call := range strings.Split(p.read("calls"), "call\n")[1:] {
		calls = append(calls, strings.Split(strings.TrimSuffix(call, "\n"), "\n"))
	}
	return calls
}

// Both scripts run, one after the other as in a pod, and the command reaches flux word by word.
func TestScripts(t *testing.T) {
	job := trainJob(&v1alpha1.Trainer{
		NumNodes: ptr.To[int32](2), NumProcPerNode: ptr.To[int32](2), Command: []string{"python", "-c", "print('a  b', \"$HOME\")"}, Args: []string{},
		ResourcesPerNode: &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}},
	})
	for host, wantRun := range map[string][]string{
		"llm-node-0-0": {"flux", "run", "-N", "2", "-n", "4", "-g", "2", "python", "-c", "print('a  b', \"$HOME\")"},
		"llm-node-0-1": nil,
	} {
		t.Run(host, func(t *testing.T) {
			info := enforce(t, job, fluxRuntime(nil))
			p := newPod(t, host, files(t, job, fluxRuntime(nil)))
			spec := info.Trainer().PodSpec()
			command := func(c *corev1.Container) []string {
				local := slices.Clone(c.Command)
				local[1] = p.local(local[1])
				return local
			}
			p.run(command(&spec.InitContainers[0])...)
			p.run(command(&spec.Containers[0])...)

			calls := p.calls()
			if diff := cmp.Diff([]string{"R", "encode", "--hosts=llm-node-0-[0-1]", "--cores=0-1", "--gpus=0-3"}, calls[0]); diff != "" {
				t.Errorf("resources (-want +got)\n%s", diff)
			}
			broker := calls[len(calls)-1]
			words := slices.DeleteFunc(slices.Clone(broker[1:]), func(word string) bool {
				return strings.HasPrefix(word, "-S") || strings.HasPrefix(word, "--config-path=")
			})
			if broker[0] != "broker" {
				t.Errorf("broker call = %q", broker)
			}
			if diff := cmp.Diff(wantRun, append([]string(nil), words...)); diff != "" {
				t.Errorf("command (-want +got)\n%s", diff)
			}
			if wantRun == nil && len(calls) != 4 {
				t.Errorf("%d calls: the broker has to try until the lead answers", len(calls))
			}
			if got := p.read("mnt/flux/config/etc/flux/system/R"); got != "resources\n" {
				t.Errorf("R = %q", got)
			}
			if got := p.read("mnt/flux/config/etc/flux/config/broker.toml"); !strings.Contains(got, "[bootstrap]") {
				t.Errorf("broker.toml = %q", got)
			}
			certificate, err := os.Stat(filepath.Join(p.root, "mnt/flux/config/etc/curve/curve.cert"))
			if err != nil || certificate.Mode().Perm() != 0o600 {
				t.Errorf("certificate: %v, %v", certificate, err)
			}
			p.read("mnt/flux/view/bin/flux")
			p.read("opt/software/linux/hwloc")
			if env := p.read("mnt/flux/flux-view.sh"); !strings.Contains(env, "python3.11/site-packages") || !strings.Contains(env, "fluxsocket=") {
				t.Errorf("flux-view.sh = %s", env)
			}
		})
	}
}

// Without a command the lead's broker runs alone, for use by hand.
func TestScriptsWithoutCommand(t *testing.T) {
	job := trainJob(nil)
	spec := fluxRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
		node := &s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
		node.Command, node.Args = nil, nil
	})
	p := newPod(t, "llm-node-0-0", files(t, job, spec))
	p.run("/bin/bash", p.local("/etc/flux-config/init.sh"))
	p.run("/bin/bash", p.local("/etc/flux-config/entrypoint.sh"))
	calls := p.calls()
	if broker := calls[len(calls)-1]; slices.Contains(broker, "run") {
		t.Errorf("broker call = %q", broker)
	}
	if slices.Contains(calls[0], "--gpus=") {
		t.Errorf("resources = %q", calls[0])
	}
}
