// Package dns is the name server of a cluster: it watches Services, EndpointSlices and Namespaces,
// answers for their names from memory, and forwards all other questions to upstream servers.
//
// Package dns/zone decides, as a pure core, what each name means; package dns/forward chooses the
// upstream server for each other question. A [Server] is the loop around them: it has the sockets,
// parses messages, and updates the zone with each Service that changed.
//
// Invariants:
//
//	dns-D1  An answer has the ID and the question of the query, with the same letter case, and is
//	        never longer than the client can receive. An answer that does not fit over UDP is
//	        truncated with the TC bit, and complete over TCP.
//	dns-D2  Names of the cluster domain, and of the addresses of its networks, are answered here
//	        and never forwarded.
//	dns-D3  The goroutine that reads a question answers it, if that needs only memory. Forwarded
//	        questions have one goroutine each, of which there is a bounded number. Over TCP they do
//	        not delay the questions behind them.
//	dns-D4  Until the zone is complete, no answer says that a name does not exist: questions wait
//	        in their sockets, and get SERVFAIL if that takes long.
//	dns-D5  Without questions and changes nothing runs.
//
// A failure has an extended DNS error that explains it (RFC 8914), for clients that support these.
// Questions of other classes than IN, for zone transfers, and for all records of a name (RFC 8482)
// are refused.
//
// The server does not sign, validate, update or transfer zones, and has no plug-ins.
package dns
