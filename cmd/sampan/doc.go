// Command sampan is a whole Kubernetes cluster in one program, and its command
// line.
//
// It only puts things together: the command line is package cli, the cluster package
// cluster, and what "sampan up" and its like do package cli/machine. Built with the
// tag embed, as "make build" does, it carries the container runtime inside; without,
// it looks for sampan-runtime beside itself.
package main
