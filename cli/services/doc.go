// Package services has the verbs about Services: service trace says how connections to one
// go, and why nothing answers.
//
// What is said comes from package proxy/trace; here is what it is made from: objects of the
// server, and what the agent of a node saw. Nothing is changed, but that connections are made.
package services
