// Package rollouts has the verbs that replace pods by others: rollout, for what controllers
// on the server do, and rolling-update, which drives a replication controller itself with
// package rollout.
//
// Where kubectl has the verb, what is printed is in kubectl's words.
package rollouts
