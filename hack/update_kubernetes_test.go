// Package hack_test runs the scripts that maintain the repository.
package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is a copy of the files that update-kubernetes.sh changes.
type repository struct{ dir string }

func newRepository(t *testing.T, change func(goMod string) string) repository {
	t.Helper()
	r := repository{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(r.dir, "hack"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "Makefile", "hack/update-kubernetes.sh"} {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		content := string(data)
		if name == "go.mod" {
			content = change(content)
		}
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r repository) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (r repository) update(args ...string) (string, error) {
	command := exec.Command(filepath.Join(r.dir, "hack/update-kubernetes.sh"), args...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// currentVersion is the version that the repository is on; its sources are in the module cache, so
// that the test needs nothing from outside.
func currentVersion(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^KUBERNETES_VERSION := (v1\.\d+\.\d+)$`).FindSubmatch(data)
	if match == nil {
		t.Fatal("the Makefile names no KUBERNETES_VERSION")
	}
	return string(match[1])
}

func TestMakefileStampsTheVersionThatIsBuilt(t *testing.T) {
	version := currentVersion(t)
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "k8s.io/kubernetes " + version; !strings.Contains(string(goMod), want) {
		t.Errorf("go.mod does not require %q, which the Makefile stamps into the binaries", want)
	}
	staging := "v0" + strings.TrimPrefix(version, "v1")
	for _, replacement := range regexp.MustCompile(`(?m)^\s*k8s\.io/\S+ => k8s\.io/\S+ (\S+)$`).FindAllStringSubmatch(string(goMod), -1) {
		if replacement[1] != staging {
			t.Errorf("%s: want version %s", strings.TrimSpace(replacement[0]), staging)
		}
	}
}

func TestDryRunMovesEverythingAndChangesNothing(t *testing.T) {
	version := currentVersion(t)
	staging := "v0" + strings.TrimPrefix(version, "v1")
	old := newRepository(t, func(goMod string) string {
		goMod = strings.ReplaceAll(goMod, "k8s.io/kubernetes "+version, "k8s.io/kubernetes v1.30.1")
		goMod = regexp.MustCompile(`(k8s\.io/\S+ => k8s\.io/\S+) v\S+`).ReplaceAllString(goMod, "$1 v0.30.1")
		// A module that is new since then, and one that is gone.
		return strings.Replace(goMod, "k8s.io/kubectl => k8s.io/kubectl v0.30.1", "k8s.io/legacy-thing => k8s.io/legacy-thing v0.30.1", 1)
	})
	makefile := filepath.Join(old.dir, "Makefile")
	if err := os.WriteFile(makefile, []byte(strings.ReplaceAll(old.read(t, "Makefile"), version, "v1.30.1")), 0o644); err != nil {
		t.Fatal(err)
	}
	goModBefore, makefileBefore := old.read(t, "go.mod"), old.read(t, "Makefile")

	output, err := old.update("--dry-run", version)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, want := range []string{
		"-\tk8s.io/kubernetes v1.30.1",
		"+\tk8s.io/kubernetes " + version,
		"+\tk8s.io/client-go => k8s.io/client-go " + staging,
		"+\tk8s.io/kubectl => k8s.io/kubectl " + staging,
		"-\tk8s.io/legacy-thing => k8s.io/legacy-thing v0.30.1",
		"-KUBERNETES_VERSION := v1.30.1",
		"+KUBERNETES_VERSION := " + version,
	} {
		if !strings.Contains(output, want+"\n") {
			t.Errorf("the dry run does not print %q", want)
		}
	}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "+") && strings.Contains(line, "30.1") {
			t.Errorf("left behind: %s", line)
		}
	}
	if old.read(t, "go.mod") != goModBefore || old.read(t, "Makefile") != makefileBefore {
		t.Error("the dry run changed a file")
	}
}

func TestDryRunToTheCurrentVersionLeavesTheReplacementsAlone(t *testing.T) {
	same := newRepository(t, func(goMod string) string { return goMod })
	output, err := same.update("--dry-run", currentVersion(t))
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for line := range strings.Lines(output) {
		if changed := strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-"); changed && strings.Contains(line, "=>") {
			t.Errorf("changed a replacement: %s", line)
		}
	}
}

func TestBadVersions(t *testing.T) {
	r := newRepository(t, func(goMod string) string { return goMod })
	for _, version := range []string{"1.37.2", "v0.37.2", "v1.37", "latest", "v1.37.2; true"} {
		output, err := r.update("--dry-run", version)
		if err == nil || !strings.Contains(output, "is not a release of Kubernetes") || !strings.Contains(output, version) {
			t.Errorf("%q: want an error that names the version, got %v: %s", version, err, output)
		}
	}
	if output, err := r.update(); err == nil || !strings.Contains(output, "update-kubernetes.sh") {
		t.Errorf("no version: want the usage, got %v: %s", err, output)
	}
}
