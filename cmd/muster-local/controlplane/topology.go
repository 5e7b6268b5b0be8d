package controlplane

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// RackLabel is the node label that the topology level "rack" stands for.
const RackLabel = "topology.muster.dev/rack"

// topologyLabels are the node labels that short level names stand for.
var topologyLabels = map[string]string{
	"region": corev1.LabelTopologyRegion,
	"zone":   corev1.LabelTopologyZone,
	"block":  "topology.muster.dev/block",
	"rack":   RackLabel,
}

// Level is one level of the network topology of simulated nodes.
type Level struct {
	// Label is the key of the node label that names a node's domain on this level.
	Label string

	// Prefix and a number make the names of the domains, for example rack-0.
	Prefix string

	// Domains is how many domains the level has in the whole cluster.
	Domains int
}

// ParseTopology reads levels, outermost first, from a flag such as "zone=2,rack=4": two zones and four
// racks in all, two in each zone. A level is region, zone, block, rack or a label key. The empty string
// is no levels.
func ParseTopology(value string) ([]Level, error) {
	if value == "" {
		return nil, nil
	}
	var levels []Level
	for _, part := range strings.Split(value, ",") {
		name, count, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found {
			return nil, fmt.Errorf("topology: %q is not level=domains", part)
		}
		level := Level{Label: name, Prefix: name[strings.LastIndex(name, "/")+1:]}
		if label, short := topologyLabels[name]; short {
			level.Label = label
		} else if !strings.Contains(name, "/") {
			return nil, fmt.Errorf("topology: level %q is neither region, zone, block, rack nor a label key with a prefix", name)
		}
		domains, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("topology: level %s: %q is not a number of domains", name, count)
		}
		level.Domains = domains
		levels = append(levels, level)
	}
	return levels, validateTopology(levels)
}

func validateTopology(levels []Level) error {
	seen := map[string]bool{}
	parent := 1
	for _, level := range levels {
		switch {
		case len(validation.IsQualifiedName(level.Label)) > 0:
			return fmt.Errorf("topology: %q is not a label key: %s", level.Label, strings.Join(validation.IsQualifiedName(level.Label), "; "))
		case seen[level.Label]:
			return fmt.Errorf("topology: level %s is given twice", level.Label)
		case level.Domains < 1:
			return fmt.Errorf("topology: level %s: must have at least 1 domain, has %d", level.Label, level.Domains)
		case level.Domains%parent != 0:
			return fmt.Errorf("topology: level %s: %d domains cannot be split evenly over the %d of the level above", level.Label, level.Domains, parent)
		}
		seen[level.Label], parent = true, level.Domains
	}
	return nil
}

// domain names the domain of a level that the i-th of n nodes is in. Domains are contiguous and differ
// by at most one node in size, and a domain's nodes share the domain of every level above.
func (l Level) domain(i, n int) string {
	return l.Prefix + "-" + strconv.Itoa(i*l.Domains/n)
}
