// Package operation performs requests about objects for a user: get, list, watch, create, update, patch, apply, delete and
// evict. It authorizes, defaults, admits and validates, and keeps the rules of metadata, of managed fields and of concurrent
// writes.
//
// A request comes decoded: a [Target] has its resource, name and user, and its body and options are typed. The result is a
// [Result], a [Listing] or a sequence of [Change], with objects of package codec. The package does not know HTTP: paths,
// parameters, encodings, the pace of clients and the seats of a priority level are those of package httpserver, and the client of
// this process is in package apiserver.
//
// [Operations] owns the order of writers that lost against others (turns) and the metrics of authorization and admission. Objects
// are in the [Store]; which kinds there are, and how they differ, is in package catalog. By name the package knows
// only pods and disruption budgets, for evictions, and namespaces, whose unreadable records are removed with them.
package operation
