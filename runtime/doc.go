// Package runtime is a container runtime for one node: it serves CRI v1 on a unix socket, and combines images (package
// image), containers (package container) and pod networks (package network).
//
// A [Server] is meant to run in a separate process, the parent of all containers. Its clients may connect and
// disconnect, and the process itself may be killed and started again, or replaced in place by a newer program, while
// pods keep running:
//
//	R1  A request that was answered with success is complete, and its effect survives the death of the server.
//	R2  A pod or container that was being created when the server was killed is removed at the next start, with all
//	    its resources.
//	R3  A pod is a set of pinned namespaces. No process holds them, except for the PID namespace of a pod whose
//	    containers share one: it needs a process 1, which is a container that no CRI call lists.
//	R4  A clean shutdown, and [Clean] after an unclean one, leave nothing of the runtime on the machine except the
//	    image store: no process, mount, link, rule, cgroup, namespace, and no changed setting.
//	R5  Each change of a pod or container is sent once to every listener of GetContainerEvents, in order for that
//	    pod, after the answers of the other calls show it.
//
// Exec, Attach and PortForward are answered with URLs of package streaming. They end when the server ends or is
// replaced; the commands in containers are not killed then.
//
// CRI calls that this runtime does not support are answered with Unimplemented: checkpoints, user namespaces, devices.
package runtime
