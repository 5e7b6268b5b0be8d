package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCopiesAreCurrent fails when go.mod requires another JobSet than the copies were made from.
func TestCopiesAreCurrent(t *testing.T) {
	source, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(source)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Errorf("%d files, want 3", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the module's: run go generate in %s", name, filepath.Dir(name))
		}
	}
}
