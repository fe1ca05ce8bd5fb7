// Package audit records who did what, as audit events of Kubernetes (audit.k8s.io/v1), in a log file and by a webhook.
//
// A [Policy] says which requests are recorded, at which stages, and with which bodies. [Auditor.Begin] returns the
// [Record] of a request, or nil if the policy wants none; the methods of a nil Record do nothing. The record travels in the
// context of the request, so that the authorizer and admission plug-ins can add annotations ([Record.Annotate]).
//
// An event is encoded once, when its stage is reached, and goes to each sink. In the modes blocking and blocking-strict
// the request waits for the sink; in the mode batch the event is put into a bounded queue. When a queue is full, the disk is
// full or the webhook does not answer, events are dropped and counted, and requests go on, except that blocking-strict
// refuses the requests that it cannot record. [Auditor.Run] empties the queues at the end.
//
// The types of the API are defined here, because those of k8s.io/apiserver need most of that module.
package audit
