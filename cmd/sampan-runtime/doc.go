// Command sampan-runtime is the container runtime of a Sampan node: one process, the
// parent of all containers, that serves CRI on a unix socket. See package runtime.
//
// It is a program of its own so that containers live on while sampan is restarted,
// and, being executed again as "init", the first process of each container. Sampan
// carries it inside and starts it.
package main
