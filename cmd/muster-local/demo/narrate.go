package demo

import (
	"fmt"
	"slices"
	"time"
)

// settled is for how long a job must have held only a part of its nodes before that is worth a line:
// even a commit of a whole gang takes its moment.
const settled = 2 * time.Second

// say writes a line with the time since the act began.
func (a *act) say(now time.Time, format string, args ...any) {
	a.screen.Say("%s  %s", a.screen.paint(faint, fmt.Sprintf("%5.1fs", now.Sub(a.began).Seconds())), fmt.Sprintf(format, args...))
}

func (a *act) sayWhole(now time.Time, j *job) {
	took := j.whole.Sub(j.firstBound)
	if took < settled {
		a.say(now, "%s is whole: its %d pods were bound within %d ms", a.screen.paint(bold, j.name), j.nodes, took.Milliseconds())
	} else {
		a.say(now, "%s is whole at last: its %d pods were bound over %.1f s", a.screen.paint(bold, j.name), j.nodes, took.Seconds())
	}
	a.mapDue = now.Add(tick)
}

// explain says of each job that waits why it does, when there is something new to say.
func (a *act) explain(now time.Time) {
	for _, j := range a.jobs {
		text := a.reason(j, now)
		if text == "" || text == j.said || now.Sub(j.saidAt) < settled {
			continue
		}
		j.said, j.saidAt = text, now
		a.say(now, "%s waits: %s", a.screen.paint(bold, j.name), text)
		if a.ledger.bound(j.name) > 0 {
			a.mapDue = now.Add(tick)
		}
	}
}

// reason is the scheduler's own explanation if it gives one for the whole job, or else what can be seen.
func (a *act) reason(j *job, now time.Time) string {
	if a.ledger.whole(j.name) {
		return ""
	}
	if bound := a.ledger.bound(j.name); bound > 0 && now.Sub(a.ledger.changed) >= settled {
		return fmt.Sprintf("it holds %d of its %d nodes, %d GPUs that nobody can use", bound, j.nodes, bound*GPUsPerNode)
	}
	return j.refusal
}

// draw shows the panel or, where there is none, the map after something worth seeing.
func (a *act) draw(now time.Time) {
	if a.screen.live {
		a.screen.show(a.panel(now))
		return
	}
	// A picture of a commit that is under way would show what lasts for milliseconds.
	quiet := a.ledger.wasting() == 0 || now.Sub(a.ledger.changed) > 2*tick
	if !a.mapDue.IsZero() && now.After(a.mapDue) && quiet {
		a.mapDue = time.Time{}
		a.printMap()
	}
}

// printMap prints the map unless it is the one that was printed last.
func (a *act) printMap() {
	lines := indent(a.drawMap())
	if !slices.Equal(lines, a.printed) {
		a.screen.lines(lines...)
		a.printed = lines
	}
}

func (a *act) panel(now time.Time) []string {
	lines := append([]string{""}, indent(a.drawMap())...)
	for _, j := range a.jobs {
		lines = append(lines, fmt.Sprintf("         %c %-6s %2d x %d GPUs  %s", j.letter(), j.name, j.nodes, GPUsPerNode, fit(a.state(j, now), minColumns-34)))
	}
	return append(lines, fmt.Sprintf("         GPUs held by gangs that cannot run: %d now, %.0f GPU-seconds so far", a.ledger.wasting(), a.ledger.wasted))
}

func (a *act) state(j *job, now time.Time) string {
	switch {
	case !j.completed.IsZero():
		return "done"
	case !j.trained.IsZero() && !a.ledger.finished(j.name):
		return fmt.Sprintf("training, %.0f of %.0f s", min(now.Sub(j.trained), j.training).Seconds(), j.training.Seconds())
	case a.ledger.whole(j.name):
		return "all pods bound"
	case a.ledger.bound(j.name) > 0:
		return fmt.Sprintf("holds %d of %d nodes and waits", a.ledger.bound(j.name), j.nodes)
	case j.refusal != "":
		return "waits: " + j.refusal
	default:
		return "waits"
	}
}

func (a *act) drawMap() []string {
	letters := map[string]rune{}
	colors := map[string]string{}
	palette := []string{cyan, green, yellow}
	for i, j := range a.jobs {
		letters[j.name] = j.letter()
		colors[j.name] = palette[i%len(palette)]
	}
	return drawMap(a.nodes, a.ledger, letters, func(job string, wasting bool, text string) string {
		if wasting {
			return a.screen.paint(red, text)
		}
		return a.screen.paint(colors[job], text)
	})
}

// indent puts lines under the text of say.
func indent(lines []string) []string {
	for i := range lines {
		lines[i] = "         " + lines[i]
	}
	return lines
}
