package trainer

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The documentation names a test for every fault of Kubeflow Trainer's and its neighbours'. They must be there.
func TestDocumentedTestsExist(t *testing.T) {
	page, err := os.ReadFile("../docs/trainer.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 30 {
		t.Fatalf("only %d tests are named", len(named))
	}
	var tests strings.Builder
	for _, root := range []string{".", "../manifests", "../plugins", "../podgroup", "../test"} {
		if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			tests.Write(content)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("there is no %s", name[1])
		}
	}
}
