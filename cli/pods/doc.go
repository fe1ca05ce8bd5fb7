// Package pods has the commands logs, exec and run job. run job creates a Job, prints its
// output and exits with its exit code.
package pods
