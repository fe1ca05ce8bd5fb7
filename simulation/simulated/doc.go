// Package simulated is a container runtime without containers.
//
// A [Runtime] implements the interface that the node agent declares. Its pods get separate addresses and run at once;
// no program is executed, no file is mounted, and every image exists. So a test or a demonstration has hundreds of
// nodes, in one process, with the real node agent.
//
// Annotations set the behaviour of a pod:
//
//	sampan.dev/simulated-run-seconds  its containers end after this time
//	sampan.dev/simulated-exit-code    with this code (0)
//	sampan.dev/simulated-pull-error   pulling its images fails, if the pull policy asks for it: the error
//	sampan.dev/simulated-unready      its probes fail: the error
//	sampan.dev/simulated-cpu          what each of its containers uses, such as 250m (0)
//	sampan.dev/simulated-memory       what each of its containers uses, such as 64Mi (0)
//
// Init containers end at once, with code 0, as on the nodes of package simulation/nodes.
//
// Each container writes one line to its log, if the agent sets a log path. ExecSync returns the command itself. Exec,
// Attach and PortForward are refused. A new process goes on with the pods that it is given, as their statuses show
// them.
package simulated
