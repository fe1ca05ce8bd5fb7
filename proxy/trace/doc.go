// Package trace explains how a connection to a Service goes: by which rule, to which
// endpoints, why not to the others, what the server sees, what answers, and why nothing does.
//
// [Parse] reads what a user names, [Find] which Service that is, [Paths] which of its
// addresses are meant, and [Explain] puts together a [Trace] from API objects and from what
// the node saw ([NodeReport], of package proxy/tracer). All are functions of values; nothing
// is asked here.
//
//	T1  Which endpoints are candidates is the planner's own answer (package proxy).
//	T2  What the node has that the plan does not say comes first.
//	T3  What was not seen is not guessed: without a NodeReport nothing is said to answer.
//	T4  A cause is in words of the user's objects: labels, pods, ports, networks.
package trace
