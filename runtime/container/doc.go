// Package container starts containers and keeps their exits and their output.
//
// A [Keeper] is the parent of every container of a node. What it knows of one
// container lies in a directory of its own under the state directory: record.json
// (what it is and which process it became), exit.json (how it ended) and the
// FIFOs of its output. So a keeper that was killed finds its containers again,
// and a keeper that was replaced in place (see [Keeper.Handover]) loses nothing.
// The kernel's part is done by runc's libcontainer, which executes this program
// again with the argument "init" (see [Init]).
//
// Invariants, cited by the tests:
//
//	K1  An exit is written to its file before anybody is told of it.
//	K2  An exit code is what the kernel said, or unknown; it is never guessed.
//	K3  A container's output descriptors are opened for reading and writing, so
//	    the death of the keeper kills no container with SIGPIPE: what is written
//	    meanwhile waits in the FIFO.
//	K4  A container that has ended has no process, and no cgroup, left.
//	K5  A log has no more and no larger files than its limits allow, and each line
//	    is in one of them until the oldest is removed.
//
// Terms: a record is what a container is; its rootfs is mounted by somebody else
// (package image) before it is created and unmounted after it is removed; a pin
// is a bind mount that keeps a pod's namespaces alive without a process in them.
//
// The package does not know CRI, images or networks.
package container
