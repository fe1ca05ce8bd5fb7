// Package forward sends questions about names outside of the cluster to other name servers, and
// caches their answers.
//
// Servers are asked in their order. If one does not answer within a moment, the next is asked in
// parallel; one that fails is asked last for a while; a question that no server answers in time
// fails. Equal questions at the same time are sent once, and their callers get the same answer.
// Without a server there is an error at once.
//
// The list of servers is read again when a question comes, at most once a second, so that a laptop
// that changes its network needs no restart and an idle program does nothing.
//
// A server that forwards to us would make a loop. So a server that does not answer within a moment
// gets, in parallel with the first question and with each repeated one, a question with a random
// name; if that name comes back to us ([Forwarder.Looped]), the server is not used for half a
// minute, and then tried last.
//
// A server without support for EDNS is asked without it. If a server can't be reached over TCP, its
// truncated answer over UDP is used.
//
// Answers are cached according to RFC 2308, negative ones by their SOA; without one they are not
// cached. Failures are cached for a few seconds (RFC 9520). The cache is bounded in bytes and
// removes the least recently used entries.
//
// The forwarder does not validate; it passes DNSSEC records on to clients that ask for them.
package forward
