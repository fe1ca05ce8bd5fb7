// Package cli is the command line.
//
// The verbs live in rooms below, each a file there:
//
//	objects    create run replace apply delete get scale
//	waiting    wait, and --wait of the others
//	pods       logs exec, run job
//	rollouts   rollout rolling-update
//	nodes      cordon uncordon drain
//	images     image
//	machine    up down status kubeconfig serve demo: clusters of this machine
//	scheduling scheduler, scheduler explain
//	here       version
//
// They stand on session (streams, flags, connection), show (-o), exit (how a command ends),
// resource (any input as objects), and on apply, manifest, schema and progress.
//
// A verb says its flags, turns its input into objects, asks the server through package
// client, and prints what kubectl would print where kubectl has the verb. It works against
// any Kubernetes cluster that the kubeconfig names, not only our own.
//
// Verbs return errors and never exit; [Main] prints the error and picks the exit
// code, so that every failure reads the same:
//
//	0    done
//	1    wrong use, no connection or no permission
//	2    it failed for good
//	3    timed out
//	4    nothing matched, or it is gone
//	5    rolled back without having been asked to
//	130  interrupted
//
// A command that ran inside a container ends with that command's own code; for run job,
// 125 is a failure of ours.
//
// The verbs that start and stop a cluster on this machine belong to the program
// that has one to start: it passes them in as Options.Extra.
package cli
