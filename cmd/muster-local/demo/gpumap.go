package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mapNode is a node as the map shows it.
type mapNode struct {
	name string
	rack string
	gpus int
}

// freeGPU stands for a GPU that no pod holds.
const freeGPU = "·"

// drawMap draws one line per rack and one character per GPU: the letter of the job that holds it,
// upper case if the job's gang can run and lower case if it waits with the GPU in hand. Nodes are shown
// in the order given, racks in the order of their first node. paint may colour a run of equal characters.
func drawMap(nodes []mapNode, l *ledger, letters map[string]rune, paint func(job string, wasting bool, text string) string) []string {
	type held struct {
		job  string
		gpus int
	}
	byNode := map[string][]held{}
	for _, pod := range l.pods {
		if pod.node != "" && !pod.finished {
			byNode[pod.node] = append(byNode[pod.node], held{pod.job, pod.gpus})
		}
	}
	lines := map[string]*strings.Builder{}
	var racks []string
	width := 0
	for _, node := range nodes {
		if lines[node.rack] == nil {
			lines[node.rack] = &strings.Builder{}
			racks = append(racks, node.rack)
			width = max(width, len(node.rack))
		}
		line := lines[node.rack]
		if line.Len() > 0 {
			line.WriteString(" ")
		}
		pods := byNode[node.name]
		slices.SortFunc(pods, func(a, b held) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.gpus, b.gpus)) })
		free := node.gpus
		for _, pod := range pods {
			letter := string(letters[pod.job])
			wasting := !l.whole(pod.job)
			if wasting {
				letter = strings.ToLower(letter)
			}
			line.WriteString(paint(pod.job, wasting, strings.Repeat(letter, min(pod.gpus, free))))
			free -= min(pod.gpus, free)
		}
		line.WriteString(strings.Repeat(freeGPU, free))
	}
	drawn := make([]string, len(racks))
	for i, rack := range racks {
		drawn[i] = fmt.Sprintf("%-*s  %s", width, rack, lines[rack])
	}
	return drawn
}

// sortNodes puts nodes into the order of their racks and then of their numbers.
func sortNodes(nodes []mapNode) {
	byNumber := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	slices.SortFunc(nodes, func(a, b mapNode) int { return cmp.Or(byNumber(a.rack, b.rack), byNumber(a.name, b.name)) })
}
