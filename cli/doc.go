// Package cli is the command line.
//
// One verb is one file: it says its flags, turns its input into objects with
// package resource, asks the server through package client, and prints what kubectl
// would print where kubectl has the verb. It works against any Kubernetes cluster
// that the kubeconfig names, not only our own.
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
// Verbs that write wait for what they wrote if --wait is given: exactly these objects
// (UID), as they were written (generation, resource version). How a wait is told is
// package progress; Ctrl-C ends the telling and changes nothing in the cluster.
//
// The verbs that start and stop a cluster on this machine belong to the program
// that has one to start: it passes them in as Options.Extra.
package cli
