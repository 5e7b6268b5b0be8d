package coscheduling

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/clock"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// FairShareArgs say how the order FairShare counts what namespaces use.
type FairShareArgs struct {
	// HalfLifeSeconds is how long it takes until use in the past counts half, in seconds: from 1 to 31,536,000 (a
	// year); 86,400 (a day) by default.
	HalfLifeSeconds *int64 `json:"halfLifeSeconds,omitempty"`

	// Resources are the extended resources that count, and how much each counts against the others: 0.5 makes the
	// use of the whole cluster's count as much as that of half of it. A name may end with a wildcard "*". By default
	// those of known accelerators count alike.
	Resources map[string]float64 `json:"resources,omitempty"`
}

// defaultHalfLife is a working day and the night after it.
const defaultHalfLife = 24 * time.Hour

const maxHalfLife = 365 * 24 * time.Hour

func (a *FairShareArgs) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a == nil {
		return nil
	}
	if s := a.HalfLifeSeconds; s != nil && (*s < 1 || *s > int64(maxHalfLife/time.Second)) {
		errs = append(errs, field.Invalid(path.Child("halfLifeSeconds"), *s, fmt.Sprintf("must be from 1 to %d", int64(maxHalfLife/time.Second))))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Resources)) {
		at := path.Child("resources").Key(name)
		if strings.Contains(strings.TrimSuffix(name, "*"), "*") || !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(at, name, `must be the name of an extended resource, such as "example.com/gpu" or "example.com/gpu-*"`))
		}
		if weight := a.Resources[name]; !(weight > 0 && weight <= 1000) {
			errs = append(errs, field.Invalid(at, weight, "must be more than 0 and at most 1000"))
		}
	}
	return errs
}

// usage is what each namespace uses of the resources that count, now and in the past. Events of pods and nodes keep
// it up to date. It is safe for concurrent use.
type usage struct {
	clock    clock.PassiveClock
	halfLife time.Duration
	weights  map[string]float64

	mu sync.Mutex
	// capacity is what all nodes have, and nodes what each has.
	capacity amounts
	nodes    map[string]amounts
	pods     map[types.UID]use
	// namespaces holds those that use or used something.
	namespaces map[string]map[corev1.ResourceName]*average
}

// amounts are of the resources that count, in the units of the resource.
type amounts map[corev1.ResourceName]int64

// use is what a pod with a node uses.
type use struct {
	namespace string
	amounts   amounts
}

// average is how much of a resource is used now, and an average over the past in which use counts half after each
// half-life. Seen otherwise, it is the decayed integral of the use over time, in units of the half-life divided by
// ln 2.
type average struct {
	now   int64
	value float64
	at    time.Time
}

// shareUnits is how many steps a share of 1 has. Shares that differ by less are equal.
const shareUnits = 1000

func newUsage(clock clock.PassiveClock, args *FairShareArgs) *usage {
	u := &usage{
		clock: clock, halfLife: defaultHalfLife, weights: map[string]float64{},
		capacity: amounts{}, nodes: map[string]amounts{}, pods: map[types.UID]use{},
		namespaces: map[string]map[corev1.ResourceName]*average{},
	}
	if args != nil {
		if args.HalfLifeSeconds != nil {
			u.halfLife = time.Duration(*args.HalfLifeSeconds) * time.Second
		}
		maps.Copy(u.weights, args.Resources)
	}
	if len(u.weights) == 0 {
		for _, name := range gangplan.DefaultAccelerators {
			u.weights[name] = 1
		}
	}
	return u
}

// weight returns how much a resource counts, 0 if it does not. Of several wildcards the longest holds.
func (u *usage) weight(name corev1.ResourceName) float64 {
	if w, ok := u.weights[string(name)]; ok {
		return w
	}
	weight, longest := 0.0, -1
	for pattern, w := range u.weights {
		if start, wild := strings.CutSuffix(pattern, "*"); wild && len(start) > longest && strings.HasPrefix(string(name), start) {
			weight, longest = w, len(start)
		}
	}
	return weight
}

func (u *usage) counted(list corev1.ResourceList) amounts {
	var out amounts
	for name, quantity := range list {
		if value := quantity.Value(); value > 0 && strings.Contains(string(name), "/") && u.weight(name) > 0 {
			if out == nil {
				out = amounts{}
			}
			out[name] = value
		}
	}
	return out
}

func (u *usage) setNode(node *corev1.Node) {
	has := u.counted(node.Status.Allocatable)
	u.mu.Lock()
	defer u.mu.Unlock()
	if maps.Equal(u.nodes[node.Name], has) {
		return
	}
	u.dropNode(node.Name)
	u.nodes[node.Name] = has
	for name, value := range has {
		u.capacity[name] += value
	}
}

func (u *usage) deleteNode(node *corev1.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropNode(node.Name)
}

func (u *usage) dropNode(name string) {
	for resource, value := range u.nodes[name] {
		u.capacity[resource] -= value
	}
	delete(u.nodes, name)
}

// add counts a pod that has a node, and reports whether it is new.
func (u *usage) add(pod *corev1.Pod) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.pods[pod.UID]; known {
		return false
	}
	used := use{pod.Namespace, u.counted(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))}
	u.pods[pod.UID] = used
	u.change(used, 1)
	return true
}

func (u *usage) remove(pod *corev1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used, known := u.pods[pod.UID]
	if !known {
		return
	}
	delete(u.pods, pod.UID)
	u.change(used, -1)
}

func (u *usage) change(used use, sign int64) {
	for name, value := range used.amounts {
		if u.namespaces[used.namespace] == nil {
			u.namespaces[used.namespace] = map[corev1.ResourceName]*average{}
		}
		a := u.namespaces[used.namespace][name]
		if a == nil {
			a = &average{at: u.clock.Now()}
			u.namespaces[used.namespace][name] = a
		}
		a.moveTo(u.clock.Now(), u.halfLife)
		a.now += sign * value
	}
}

// moveTo lets time pass in which the use did not change.
func (a *average) moveTo(t time.Time, halfLife time.Duration) {
	if passed := t.Sub(a.at); passed > 0 {
		level := float64(a.now)
		a.value = level + (a.value-level)*math.Exp2(-passed.Seconds()/halfLife.Seconds())
		a.at = t
	}
}

// share returns a namespace's dominant share, in thousandths: of the resources that count, the largest part of what
// the cluster has that the namespace uses now or, if that is more, used in the decaying average, times the
// resource's weight.
func (u *usage) share(namespace string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	used, ok := u.namespaces[namespace]
	if !ok {
		return 0
	}
	now, dominant := u.clock.Now(), 0.0
	for name, a := range used {
		a.moveTo(now, u.halfLife)
		// Pods may still be on a node that is gone.
		part := max(float64(a.now), a.value) / float64(max(u.capacity[name], a.now, 1))
		if a.now == 0 && part < 0.5/shareUnits {
			delete(used, name)
			continue
		}
		dominant = max(dominant, part*u.weight(name))
	}
	if len(used) == 0 {
		delete(u.namespaces, namespace)
	}
	return int(math.Round(dominant * shareUnits))
}

// shareOf is a namespace's share now, 0 for all if the order is not FairShare.
func (l *line) shareOf(namespace string) int {
	if l.usage == nil {
		return 0
	}
	return l.usage.share(namespace)
}

// asShare words a share.
func asShare(thousandths int) string { return fmt.Sprintf("%.3f", float64(thousandths)/shareUnits) }

// maxNamed bounds how many namespaces are named that go first.
const maxNamed = 5

// ahead is who goes before a gang that is refused, as it was told.
type ahead struct {
	// who are the namespaces and how many gangs of theirs wait, without their shares.
	who, told string
	at        time.Time
}

// behind says which waiting gangs go before one that is refused; nothing if the order is not FairShare. Shares change
// all the time: while nothing else changes, what was told last is told again for as long as advice is.
func (pl *Coscheduling) behind(key types.NamespacedName, priority int32) ahead {
	if pl.line.usage == nil {
		return ahead{}
	}
	now := pl.whoGoesBefore(key, priority)
	now.at = pl.clock.Now()
	if last := pl.gangs.refusalOf(key); last != nil && last.ahead.who == now.who && last.ahead.told != "" && now.at.Sub(last.ahead.at) < adviceAge {
		return last.ahead
	}
	return now
}

func (pl *Coscheduling) whoGoesBefore(key types.NamespacedName, priority int32) ahead {
	own := pl.line.usage.share(key.Namespace)
	type other struct {
		namespace    string
		share, gangs int
	}
	var first []other
	gangs := 0
	for namespace, n := range pl.gangs.refusedIn(priority) {
		if share := pl.line.usage.share(namespace); share < own {
			first = append(first, other{namespace, share, n})
			gangs += n
		}
	}
	if gangs == 0 {
		return ahead{told: fmt.Sprintf("no gang of a namespace with a smaller share waits; own share %s", asShare(own))}
	}
	slices.SortFunc(first, func(a, b other) int {
		return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.namespace, b.namespace))
	})
	var who, named []string
	for i, a := range first {
		who = append(who, fmt.Sprintf("%s %d", a.namespace, a.gangs))
		if i < maxNamed {
			named = append(named, a.namespace+" "+asShare(a.share))
		}
	}
	if more := len(first) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	slices.Sort(who)
	return ahead{who: strings.Join(who, ", "), told: fmt.Sprintf("waits behind %d %s of namespaces with a smaller share: %s; own share %s",
		gangs, plural(gangs, "gang"), strings.Join(named, ", "), asShare(own))}
}

// refusedIn counts the refused gangs of a priority in each namespace.
func (g *gangs) refusedIn(priority int32) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for key, x := range g.byKey {
		if x.refusal != nil && x.refusal.priority == priority {
			out[key.Namespace]++
		}
	}
	return out
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
