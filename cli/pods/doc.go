// Package pods has the commands on running pods: logs, exec, attach, port-forward, cp, debug, top and run job.
//
// Commands on streams exit with the exit code of the command in the container. run job creates a Job, prints its output and exits
// with its exit code.
package pods
