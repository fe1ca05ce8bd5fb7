// Package trace explains how a connection to a Service goes: by which rule, to which endpoints, why
// not to the others, which source address the server sees, what answers, and why nothing does.
//
// [Parse] parses a user's target, [Find] finds the Service, [Paths] its addresses, and [Explain]
// makes a [Trace] from API objects and the state of the node ([NodeReport], of package
// proxy/trace/probe). All are functions of values without I/O.
//
//	trace-T1  The candidates among endpoints are those of the planner (package proxy).
//	trace-T2  Differences between the node's state and the plan come first.
//	trace-T3  Nothing is guessed: without a NodeReport no address is said to answer.
//	trace-T4  A cause is in terms of the user's objects: labels, pods, ports, networks.
package trace
