// Package forward asks other name servers what the cluster does not know, and keeps
// their answers for as long as they hold.
//
// Servers are asked in their order. One that does not answer for a moment has the next
// one asked beside it, one that fails is asked last for a while, and what nobody answers
// in time fails. A question that is being asked is not asked again: all who want the
// same wait for the same answer. Without a server there is an error at once.
//
// Which servers there are is looked up when a question comes, at most once a second, so
// that a laptop that changes its network needs no restart and an idle program does
// nothing.
//
// A server that asks us in turn would go round for ever. So one that does not answer for a
// moment is sent, beside the first question and when a question is sent to it again, one
// with a name that nobody else knows; if that name comes back to us ([Forwarder.Looped]),
// the server is not asked for half a minute, and then tried as the last.
//
// A server that is older than EDNS is asked without it. One that can't be asked over TCP
// gives what it has over UDP.
//
// Answers are kept as RFC 2308 says, negative ones by the SOA that they bring; without
// one they are not kept. That nobody answered in time, or only that they can't, is kept for
// a few seconds (RFC 9520). The cache is bounded in bytes and lets go of what was asked for
// longest ago.
//
// It does not validate: DNSSEC records are passed on to who asks for them.
package forward
