// Package simulated is a container runtime without containers.
//
// A [Runtime] fits the interface that the node agent declares. Its pods get
// addresses of their own and run at once; nothing is executed, no file is mounted,
// and any image is there. So a test or a demonstration has nodes by the hundred,
// in one process, whose agents are the real ones.
//
// What a pod does is said by annotations on it:
//
//	sampan.dev/simulated-run-seconds  its containers end after so long
//	sampan.dev/simulated-exit-code    with this code (0)
//	sampan.dev/simulated-pull-error   its images can't be pulled, where the pull
//	                                  policy asks for it: this is why
//	sampan.dev/simulated-unready      its probes fail: this is why
//
// Init containers end at once, with code 0, as on the nodes of package fleet.
//
// Each container writes one line to its log, if the agent gives it one. ExecSync
// answers with the command itself. Nothing survives the process.
package simulated
