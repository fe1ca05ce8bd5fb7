// Package objects has the verbs that work on any kind of object: create, run, replace,
// apply, delete, get and scale.
//
// A verb is a file. It turns its input into objects with package resource, one after the
// other; what is wrong with one does not keep the others from being worked on. create,
// run and replace put whole objects in one way (put.go); apply is package apply's.
package objects
