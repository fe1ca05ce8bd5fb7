// Package dns is the name server of a cluster: it follows Services, EndpointSlices and
// Namespaces, answers for their names from memory, and asks others for everything else.
//
// What a name means is decided in package dns/zone, a pure core; who is asked for what
// the cluster does not know, in package dns/forward. A [Server] is the loop around them:
// sockets, messages, and a zone that is told of each Service that changed.
//
// Invariants:
//
//	D1  An answer has the ID and the question of what it answers, letter for letter, and is
//	    never longer than who asked can take. What does not fit over UDP is cut with the bit
//	    TC, and whole over TCP.
//	D2  Names of the cluster domain, and of the addresses of its networks, are answered
//	    here and never leave the machine.
//	D3  What can be answered from memory is answered on the goroutine that read it. What has
//	    to be asked for elsewhere has a goroutine of its own, and of these there is a
//	    bounded number. Over TCP it does not hold up the questions behind it.
//	D4  Until the zone is complete nobody is told that a name does not exist: questions
//	    wait in their sockets, and are answered with SERVFAIL if that takes long.
//	D5  Nothing runs while nobody asks and nothing changes.
//
// Where a question fails, the answer says why in words (RFC 8914) to who can read them.
// Questions of other classes than IN, for zone transfers, and for everything about a name
// (RFC 8482) are turned down.
//
// It does not sign, validate, update or transfer zones, and has no plug-ins.
package dns
