// Package cpumanager decides which processors containers run on: the policy static of kubelet's CPU manager.
//
// A container of a Guaranteed pod that requests a whole number of CPUs gets as many processors for itself (cpumanager-I1). All other
// containers run on the shared processors, which no container has for itself. Reserved processors are never exclusive; they
// are shared, unless [Options.Strict] keeps them free of pods. An init container leaves its processors to the containers of its
// pod that start after it. A pod gets all its processors or none (cpumanager-I2), before it starts, and has the same ones until it
// is released (cpumanager-I3).
//
// Nothing here acts: the agent has the container runtime apply the decisions.
package cpumanager
