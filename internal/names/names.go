// Package names holds the names of annotations, labels, finalizers and classes that the product defines, all below
// sampan.dev/. They are stored in users' objects, so they never change.
package names

// Prefix is the prefix of all names.
const Prefix = "sampan.dev/"

// Annotations of Deployments; see package controller/workload.
const (
	AutoRollback = Prefix + "auto-rollback"
	Canaries     = Prefix + "canaries"
	Promote      = Prefix + "promote"
	Abort        = Prefix + "abort"
	LastGood     = Prefix + "last-good"   // written by the controller
	RolledBack   = Prefix + "rolled-back" // written by the controller
	Failed       = Prefix + "failed"      // written by the controller
	Completed    = Prefix + "completed"   // of a ReplicaSet, written by the controller
)

// ProgressDeadlineSeconds is an annotation of StatefulSets and DaemonSets.
const ProgressDeadlineSeconds = Prefix + "progress-deadline-seconds"

// Annotations of ReplicationControllers during a rolling update; see package rollout.
const (
	RolloutReplicas = Prefix + "rollout-replicas"
	RolloutHash     = Prefix + "rollout-hash"
	RolloutTaken    = Prefix + "rollout-taken"
	RolloutCleanup  = Prefix + "rollout-cleanup"
	RolloutCanaries = Prefix + "rollout-canaries"
	RolloutBack     = Prefix + "rollout-back"
	RolloutOlds     = Prefix + "rollout-olds"
	RolloutHolder   = Prefix + "rollout-holder"
	RolloutLast     = Prefix + "rollout-last"
	RolloutReplaced = Prefix + "rollout-replaced"
	RolloutReleased = Prefix + "rollout-released"
)

// Names of Services and of the service proxy.
const (
	Pool               = Prefix + "pool"          // a loadBalancerClass
	LoadBalancer       = Prefix + "load-balancer" // an annotation of Services with an address from the pool
	ProxyMode          = Prefix + "proxy-mode"
	ProxyProtocol      = Prefix + "proxy-protocol"
	KeepClientAddress  = Prefix + "keep-client-address"
	MaxConnections     = Prefix + "max-connections"
	ServiceProxy       = Prefix + "service-proxy"
	AppliedEndpoints   = Prefix + "applied-endpoints"
	AnnouncesAddresses = Prefix + "announces-addresses"
)

// UnverifiedKubelet is a label of Nodes that only administrators may set (NodeRestriction): the certificate of its kubelet is not
// verified.
const UnverifiedKubelet = "sampan.dev.node-restriction.kubernetes.io/unverified-kubelet"

// Names of nodes, their containers and volumes.
const (
	Machine                = Prefix + "machine" // an annotation of Nodes that joined: which machine has the name
	InitContainer          = Prefix + "init-container"
	ExclusiveCPUs          = Prefix + "exclusive-cpus"
	TerminationMessageFile = Prefix + "termination-message-file"
	Cluster                = Prefix + "cluster" // a label of sandboxes in a container runtime that others use as well
	Local                  = Prefix + "local"   // the provisioner of local volumes

	// ImportedRepositories is an annotation of the specs of images in CRI: the repositories, separated by commas, of the
	// names that came with an archive or the program, and not from a registry.
	ImportedRepositories = Prefix + "imported-repositories"
)

// Annotations of simulated nodes and their pods; see package simulation.
const (
	SimulatedFailure    = Prefix + "simulated-failure"
	SimulatedRunSeconds = Prefix + "simulated-run-seconds"
	SimulatedExitCode   = Prefix + "simulated-exit-code"
	SimulatedPullError  = Prefix + "simulated-pull-error"
	SimulatedUnready    = Prefix + "simulated-unready"
	SimulatedCPU        = Prefix + "simulated-cpu"
	SimulatedMemory     = Prefix + "simulated-memory"
)

// FirewallDropsPods is the type of the condition of a Node whose host's packet filter drops packets of pods (status True).
const FirewallDropsPods = Prefix + "FirewallDropsPods"
