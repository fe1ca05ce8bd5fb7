package crispec

import sampan "github.com/sampan-io/sampan/internal/names"

// Labels and annotations by which sandboxes and containers are found again after
// a restart of the agent. They are those of Kubernetes, so that tools for its
// runtimes (crictl) show pods and containers by name.
const (
	PodName       = "io.kubernetes.pod.name"
	PodNamespace  = "io.kubernetes.pod.namespace"
	PodUID        = "io.kubernetes.pod.uid"
	ContainerName = "io.kubernetes.container.name"

	ContainerHash    = "io.kubernetes.container.hash"
	RestartCount     = "io.kubernetes.container.restartCount"
	TerminationPath  = "io.kubernetes.container.terminationMessagePath"
	TerminationUse   = "io.kubernetes.container.terminationMessagePolicy"
	TerminationFile  = sampan.TerminationMessageFile
	TerminationGrace = "io.kubernetes.pod.terminationGracePeriod"

	// ExclusiveCPUs are the processors that no other container has.
	ExclusiveCPUs = sampan.ExclusiveCPUs

	// InitContainer is "true" on containers that end before others start: a runtime
	// without programs knows by it which ones have to end.
	InitContainer = sampan.InitContainer
)
