// Package capacity decides which pods a node takes, and keeps the ledger of the resources that they use.
//
// A [Ledger] admits or rejects each pod that is new to the agent ([Ledger.Admit]), ends less important pods for a critical one, gives
// containers processors for themselves, and grants resizes in place, at once or when another pod has freed resources. All of that is
// decided under one lock, which the ledger owns, so that no two decisions use the same resources.
//
// It does no I/O and calls no worker that could block: a worker is a [Pod], which gets mail. Measuring the node for evictions and
// applying resources to containers are not part of it.
package capacity
