package demo

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func unpainted(_ string, _ bool, text string) string { return text }

func TestDrawMap(t *testing.T) {
	nodes := []mapNode{
		{name: "n0", rack: "rack-0", gpus: 4}, {name: "n1", rack: "rack-0", gpus: 4},
		{name: "n2", rack: "rack-10", gpus: 4}, {name: "n3", rack: "rack-10", gpus: 2},
	}
	letters := map[string]rune{"atlas": 'A', "birch": 'B'}
	for name, test := range map[string]struct {
		pods []podState
		want []string
	}{
		"empty": {want: []string{"rack-0   ···· ····", "rack-10  ···· ··"}},
		"a whole gang and half a gang": {
			pods: []podState{
				{job: "atlas", node: "n0", gpus: 4}, {job: "atlas", node: "n2", gpus: 4},
				{job: "birch", node: "n1", gpus: 1}, {job: "birch", gpus: 1},
			},
			want: []string{"rack-0   AAAA b···", "rack-10  AAAA ··"},
		},
		"two jobs share a node, in a fixed order": {
			pods: []podState{
				{job: "birch", node: "n0", gpus: 1}, {job: "atlas", node: "n0", gpus: 2},
				{job: "birch", node: "n0", gpus: 1}, {job: "atlas", node: "n1", gpus: 2},
			},
			want: []string{"rack-0   AABB AA··", "rack-10  ···· ··"},
		},
		"finished pods hold nothing": {
			pods: []podState{{job: "atlas", node: "n0", gpus: 4, finished: true}, {job: "atlas", node: "n1", gpus: 4}},
			want: []string{"rack-0   ···· AAAA", "rack-10  ···· ··"},
		},
		"more than a node has": {
			pods: []podState{{job: "atlas", node: "n3", gpus: 8}, {job: "atlas", node: "n3", gpus: 8}},
			want: []string{"rack-0   ···· ····", "rack-10  ···· AA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(at(0), map[string]int{"atlas": 2, "birch": 2})
			for i, pod := range test.pods {
				l.set(at(0), fmt.Sprint(i), pod)
			}
			for range 20 { // the pods are in a map
				if diff := cmp.Diff(test.want, drawMap(nodes, l, letters, unpainted)); diff != "" {
					t.Fatalf("map (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestDrawMapPaints(t *testing.T) {
	l := newLedger(at(0), map[string]int{"atlas": 1, "birch": 2})
	l.set(at(0), "0", podState{job: "atlas", node: "n0", gpus: 1})
	l.set(at(0), "1", podState{job: "birch", node: "n0", gpus: 1})
	got := drawMap([]mapNode{{name: "n0", rack: "r", gpus: 3}}, l, map[string]rune{"atlas": 'A', "birch": 'B'},
		func(job string, wasting bool, text string) string {
			return fmt.Sprintf("<%s %v %s>", job, wasting, text)
		})
	if diff := cmp.Diff([]string{"r  <atlas false A><birch true b>·"}, got); diff != "" {
		t.Errorf("map (-want +got):\n%s", diff)
	}
}
