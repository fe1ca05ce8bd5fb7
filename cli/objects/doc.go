// Package objects has the commands for objects of any kind: create, run, replace, apply,
// delete, get and scale.
//
// Each command is a file. It reads its input as a stream of objects with package resource;
// an error in one object does not stop the others. create, run and replace share put.go;
// apply uses package apply.
package objects
