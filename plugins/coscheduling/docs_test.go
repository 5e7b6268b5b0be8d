package coscheduling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Whatever a condition or an event may say is told on a page for users, and every condition is on the page about the life of
// a gang.
func TestConditionsAndReasonsAreDocumented(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	all := ""
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	life, err := os.ReadFile("../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	conditions, reasons := 0, 0
	for name, value := range constants(t, ".", "../../podgroup/api/v1alpha1") {
		switch {
		case strings.HasPrefix(name, "Condition"):
			conditions++
			if !strings.Contains(string(life), "**"+value+"** (") || !strings.Contains(string(life), "- type: "+value+"\n") {
				t.Errorf("docs/lifecycle.md has no example of the condition %s", value)
			}
		case strings.HasPrefix(name, "Reason"):
			reasons++
			if !strings.Contains(all, value) {
				t.Errorf("no page tells of the reason %s", value)
			}
		}
	}
	if conditions < 8 || reasons < 30 {
		t.Errorf("only %d conditions and %d reasons found", conditions, reasons)
	}
}

// constants are the string constants of packages.
func constants(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				for i, name := range spec.Names {
					if i >= len(spec.Values) {
						continue
					}
					if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
						out[name.Name], _ = strconv.Unquote(literal.Value)
					}
				}
				return true
			})
		}
	}
	return out
}
