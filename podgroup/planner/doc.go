// Package planner decides where every member of a gang goes, for the whole gang at once, or
// explains in one sentence why it cannot.
//
// A Cluster is a tree of topology domains over nodes kept in dense arrays: the tree changes when
// nodes or their labels change, the free capacity when pods come and go. A Demand describes a
// gang as classes of identical members. Plan counts how many members of a class fit on each node,
// sums the counts up the tree, takes the lowest domain that holds the gang and, among equals, the
// one that leaves the least room, and packs the members into as few sub-domains as it can.
//
// What arithmetic cannot see is asked of a Verifier, for the chosen nodes only: each refusal
// becomes a limit for that class on that node and the gang is planned again, a bounded number of
// times.
//
// The package knows nothing of clients, informers or clocks, iterates over no map, and gives the
// same plan for the same input. A Cluster is not safe for concurrent use.
package planner
