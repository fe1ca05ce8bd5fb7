// Command sampan-runtime is the container runtime of a Sampan node: one process, the
// parent of all containers, that serves CRI on a unix socket. See package runtime.
//
// It is a separate program so that containers keep running while sampan is restarted.
// Executed again as "init", it is the first process of each container. Sampan embeds it
// and starts it.
package main
