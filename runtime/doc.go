// Package runtime is a container runtime for one node: it serves CRI v1 on a unix
// socket, and glues images (package image), containers (container) and pod networks
// (network) together.
//
// A [Server] is meant to be a process of its own, the parent of all containers.
// Whoever uses it may come and go; and the process itself may be killed and started
// again, or replaced in place by a newer program, while pods go on:
//
//	R1  What an answer says is done, is done, and survives the death of the server.
//	R2  A pod or container that was being made when the server was killed is gone
//	    after the next start, with all that it had.
//	R3  A pod exists as a set of pinned namespaces. No process holds them, except
//	    for the PID namespace of a pod whose containers share one: it needs a
//	    process 1, which is a container that no call of CRI reports.
//	R4  A clean end, and [Clean] after an unclean one, leave nothing of ours on the
//	    machine but the image store: no process, mount, link, rule, cgroup,
//	    namespace, and no changed setting.
//	R5  Each change of a pod or container is told once to every listener of
//	    GetContainerEvents, in order for that pod, after it can be seen in the
//	    answers of the other calls.
//
// What CRI asks for and this runtime doesn't do is answered with Unimplemented:
// streams into containers (exec, attach, port-forward), checkpoints, user
// namespaces, the process namespace of another container, terminals, devices.
package runtime
