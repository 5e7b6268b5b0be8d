// Package planner decides where every member of a gang goes, for the whole gang at once, or
// explains in one sentence why it cannot.
//
// A Cluster is a tree of topology domains over nodes kept in dense arrays: the tree changes when
// nodes or their labels change, the free capacity when pods come and go. A Demand describes a
// gang as classes of identical members, and sets of members with constraints of their own. Plan
// divides the members into units, which are slices or single members, and blocks of units that are
// alike. It counts how much of a block fits on each node, sums the counts up the tree, takes the
// lowest domain that holds the gang and, among equals, the one that leaves the least room, and packs
// the blocks into as few sub-domains as it can. Where blocks compete, bounds refuse what cannot fit
// without packing it. docs/planner.md has the algorithm on one page.
//
// # Constraints
//
// Required: one domain of the level holds the whole gang, or the whole set, with the members that
// have their place already. Nodes without the level's label are in none of its domains. A gang whose
// domain is full is refused; no member, early or late, goes elsewhere.
//
// Preferred: the search for the lowest domain begins at this level, not at single nodes, and climbs
// one level at a time up to the required one. Where the gang does not fit into one domain of the
// preferred level, it uses as few of them as it can, wherever they are in the domain that holds it.
// Without a preferred level the search begins at single nodes, and the gang uses as few sub-domains
// as it can at each level in turn, from the outermost. A preferred level outside the required one
// means the required one.
//
// Slices: each is in one domain of its level, inside the domain of its set, inside that of the gang.
// A slice is placed whole or not at all, also when Demand.Min ends in the middle of it. One that
// has members in place continues where they are, or the gang is refused.
//
// Preferences of the pods (Class.Score) decide only between domains and nodes that are equal
// otherwise.
//
// # Preemption
//
// Preempt chooses victims, the domain and the plan together, so that a gang of higher priority fits whole and nobody
// goes who could stay.
//
// # What arithmetic does not see
//
// This is asked of a Verifier, for the chosen nodes only: each refusal becomes a limit for that
// class on that node and the gang is planned again, a bounded number of times.
//
// The package knows nothing of clients, informers or clocks, iterates over no map, and gives the
// same plan for the same input. A Cluster is not safe for concurrent use.
package planner
