// Package simulation says what simulated nodes are and how pods live on them: the
// file of `sampan up --simulated-node-file`, read strictly, and what follows from it.
//
// A file is an object of the kind SimulatedNodes:
//
//	apiVersion: simulation.sampan.dev/v1alpha1
//	kind: SimulatedNodes
//	seed: 7                          # other dice; 0 if left out
//	nodes:
//	- name: small-{}                 # {} is the number of the node in its group, from 0
//	  count: 3000                    # one group may leave it to --simulated-nodes
//	  capacity: {cpu: "8", memory: 32Gi, pods: 110, example.com/gpu: 2}
//	  allocatable: {cpu: 7500m}      # what differs from the capacity
//	  labels: {disk: ssd}
//	  taints: [{key: dedicated, value: batch, effect: NoSchedule}]
//	  region: here
//	  zones: [a, b, c]               # in turn
//	  images: [{names: ["demo:v1"], sizeBytes: 20000000}]
//	pods:                            # the first rule that matches a pod holds
//	- selector: {matchLabels: {app: batch}}
//	  namespaces: [default]
//	  probability: 0.25              # of the pods that match; the others go on to the next rule
//	  startDelay: 1s..3s             # from being bound to running
//	  readyDelay: 500ms              # from running to ready
//	  runDuration: 20s               # then its containers end
//	  exitCode: 1                    # with this code
//	  stopDelay: 2s                  # from the signal to the end, at most the grace period
//	  imagePullError: no such image  # its images can't be pulled: this is why
//	  neverReady: true
//
// A duration is one value, or a range of which each pod has a value of its own. What
// is drawn for a pod depends on the seed, the rule and the pod's namespace and name
// alone: the same cluster goes the same way twice. A crash loop is a runDuration with
// an exitCode that is not 0 for pods that are restarted.
//
// Annotations on a pod (sampan.dev/simulated-…) say the same for that pod and go before the
// rules.
//
// Everything here is a function of values; package fleet acts on it, and `sampan
// simulate` asks what would fit on nodes that exist nowhere.
package simulation
