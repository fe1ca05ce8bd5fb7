// Package simulation defines simulated nodes and the behaviour of pods on them: it reads the file of
// `sampan up --simulated-node-file` strictly, and computes node objects and the life of each pod from it.
//
// A file is an object of the kind SimulatedNodes:
//
//	apiVersion: simulation.sampan.dev/v1alpha1
//	kind: SimulatedNodes
//	seed: 7                          # another seed draws other values; 0 if left out
//	nodes:
//	- name: small-{}                 # {} is the number of the node in its group, from 0
//	  count: 3000                    # one group may leave it to --simulated-nodes
//	  capacity: {cpu: "8", memory: 32Gi, pods: 110, example.com/gpu: 2}
//	  allocatable: {cpu: 7500m}      # where it differs from the capacity
//	  labels: {disk: ssd}
//	  taints: [{key: dedicated, value: batch, effect: NoSchedule}]
//	  region: here
//	  zones: [a, b, c]               # in turn
//	  images: [{names: ["demo:v1"], sizeBytes: 20000000}]
//	pods:                            # the first rule that matches a pod applies
//	- selector: {matchLabels: {app: batch}}
//	  namespaces: [default]
//	  probability: 0.25              # of the matching pods; the others go on to the next rule
//	  startDelay: 1s..3s             # from being bound to running
//	  readyDelay: 500ms              # from running to ready
//	  runDuration: 20s               # then its containers end
//	  exitCode: 1                    # with this code
//	  stopDelay: 2s                  # from the signal to the end, at most the grace period
//	  imagePullError: no such image  # pulling its images fails: the error
//	  neverReady: true
//	  usage: {cpu: 250m, memory: 64Mi}  # of each container while it runs; nothing if left out
//
// A duration is one value, or a range from which each pod gets one value. A value that is drawn for a pod only depends on
// the seed, the rule and the pod's namespace and name: two runs of the same cluster are equal. A crash loop is a
// runDuration with an exitCode that is not 0 for pods that are restarted.
//
// Annotations on a pod (sampan.dev/simulated-…) set the same for that pod and override the rules.
//
// Everything here is a function of values; package simulation/nodes runs the nodes, and `sampan simulate` computes which
// pods would fit on nodes that do not exist.
package simulation
