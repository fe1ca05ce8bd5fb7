// Package pods has the verbs that work inside pods: logs, exec, and run job, which stands
// for a Job: its output is the Job's, and so is its exit code.
package pods
