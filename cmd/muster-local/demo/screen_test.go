package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlainScreen(t *testing.T) {
	out := &bytes.Buffer{}
	s := &Screen{out: out}
	s.show([]string{"panel"})
	s.Say("%d jobs", 3)
	s.show([]string{"panel"})
	s.lines(s.paint(red, "x"))
	if got, want := out.String(), "3 jobs\nx\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLiveScreen(t *testing.T) {
	out := &bytes.Buffer{}
	s := &Screen{out: out, live: true, color: true}
	s.show([]string{"one", "two"})
	s.Say("said")
	s.show([]string{"three"})
	erase := func(n string) string { return "\x1b[" + n + "A\x1b[J" }
	if got, want := out.String(), "one\ntwo\n"+erase("2")+"said\none\ntwo\n"+erase("2")+"three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.paint(red, "x"); got != red+"x"+reset {
		t.Errorf("painted %q", got)
	}
	if got := s.paint(red, ""); got != "" {
		t.Errorf("painted nothing as %q", got)
	}
}

func TestFileIsNoTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s := NewScreen(file, file); s.live || s.color {
		t.Error("a file gets neither panel nor colours")
	}
}

func TestFit(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"short", "short"},
		{"exactly 10", "exactly 10"},
		{"eleven long", "eleven lo…"},
		{"nine chars and", "nine char…"},
		{"trailing  space", "trailing…"},
		{strings.Repeat("é", 12), strings.Repeat("é", 9) + "…"},
	} {
		if got := fit(test.text, 10); got != test.want {
			t.Errorf("%q became %q, want %q", test.text, got, test.want)
		}
	}
}
