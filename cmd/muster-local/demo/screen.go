package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Select Graphic Rendition sequences of ANSI terminals.
const (
	reset  = "\x1b[0m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// minColumns is the narrowest terminal on which redrawing works: a wrapped line would break it.
const minColumns = 76

// Screen is where the demo writes: lines that stay and, on a terminal, a panel below them that is
// redrawn in place.
type Screen struct {
	out   io.Writer
	live  bool
	color bool
	panel []string
}

// NewScreen returns a screen that writes to out, which leads to file. Only a terminal of sufficient width
// gets a panel, and colours only if the environment does not set NO_COLOR.
func NewScreen(out io.Writer, file *os.File) *Screen {
	columns, _, err := term.GetSize(int(file.Fd()))
	terminal := err == nil && os.Getenv("TERM") != "dumb"
	return &Screen{out: out, live: terminal && columns >= minColumns, color: terminal && os.Getenv("NO_COLOR") == ""}
}

// Say writes a line that stays.
func (s *Screen) Say(format string, args ...any) {
	s.lines(fmt.Sprintf(format, args...))
}

// lines writes lines that stay, above the panel.
func (s *Screen) lines(lines ...string) {
	panel := s.panel
	s.erase()
	for _, line := range lines {
		fmt.Fprintln(s.out, line)
	}
	s.show(panel)
}

// show replaces the panel. Without a terminal it does nothing.
func (s *Screen) show(panel []string) {
	if !s.live {
		return
	}
	s.erase()
	for _, line := range panel {
		fmt.Fprintln(s.out, line)
	}
	s.panel = panel
}

// erase removes the panel.
func (s *Screen) erase() {
	if len(s.panel) > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", len(s.panel))
		s.panel = nil
	}
}

// paint gives text a style.
func (s *Screen) paint(style, text string) string {
	if !s.color || text == "" {
		return text
	}
	return style + text + reset
}

// fit shortens text to a number of columns.
func fit(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:columns-1]), " ") + "…"
}
