// Package rollouts has the commands rollout, for the rollouts that controllers on the server
// perform, and rolling-update, which updates a replication controller itself with package
// rollout.
//
// Their output is that of kubectl if kubectl has the command.
package rollouts
