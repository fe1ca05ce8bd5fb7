// Package cli assembles the command line of sampan.
//
// The commands are in the packages below, one file each:
//
//	objects     create, run, replace, apply, delete, get and scale
//	waiting     wait, and --wait of the other commands
//	pods        logs, exec and run job
//	rollouts    rollout and rolling-update
//	nodes       cordon, uncordon and drain; simulate cut and restore
//	images      image
//	simulation  simulate
//	services    service trace
//	scheduling  scheduler and scheduler explain
//	clusters    up, down, status, kubeconfig, serve and demo: clusters of this machine
//
// Package cli has version, proxy and dns. The commands use session (streams, flags,
// connection), show (-o), exit (exit codes and error messages), resource (any input as
// objects), apply, manifest, schema and progress.
//
// A command declares its flags, turns its input into objects, calls the server through
// package client, and prints what kubectl prints if kubectl has the command. It works with
// any Kubernetes cluster of the kubeconfig.
//
// Commands return errors and never call os.Exit; [Main] prints the error and returns the
// exit code:
//
//	0    done
//	1    usage error, no connection or no permission
//	2    failed
//	3    timed out
//	4    no object matched, or the object was deleted
//	5    rolled back without a request to do so
//	130  interrupted
//
// exec and run job exit with the exit code of the command in the container; run job exits
// with 125 if the command itself did not fail.
//
// The program adds the commands of package clusters in Options.Extra, because they start
// clusters, which this package must not link.
package cli
