// Package container starts the containers of a node, and records their exits and their output.
//
// A [Supervisor] is the parent process of every container of a node. The state of one container is stored in a
// directory of its own below the state directory: record.json (its specification and its process), exit.json (how it
// ended) and the FIFOs of its output. So a supervisor that was killed finds its containers again, and a supervisor
// that was replaced in place (see [Supervisor.Handover]) loses nothing. The kernel's objects are created by runc's
// libcontainer, which executes this program again with the argument "init" (see [Init]).
//
// Invariants, cited by the tests:
//
//	K1  An exit is written to its file before it is reported to any client.
//	K2  An exit code is the one that the kernel reported, or unknown; it is never guessed.
//	K3  A container's output descriptors are opened for reading and writing, so the death of the supervisor kills no
//	    container with SIGPIPE: output that is written meanwhile waits in the FIFO. Terminals, open standard inputs and
//	    exit codes survive it by a second process, which keeps the descriptors (see fdStore).
//	K4  A container that has ended has no process, and no cgroup, left.
//	K5  A log has no more and no larger files than its limits allow, and each line is in one of them until the oldest
//	    is removed.
//	K6  A client of a stream is never missing output because it is slow; one that takes none for half a minute is
//	    detached. The end of a client kills neither a container nor a command in it.
//
// Terms: a record is the stored specification of a container; its rootfs is mounted by package image before it is
// created and unmounted after it is removed; a pin keeps a pod's namespaces alive without a
// process in them.
//
// CRI, images and networks are outside this package.
package container
