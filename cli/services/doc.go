// Package services has the command service trace, which explains how connections to a Service
// are routed and why they fail.
//
// The explanation is made by package proxy/trace from the objects of the server and the
// report of the node's agent. Test connections are the only side effect.
package services
