// Package static reads static pods from the files of a directory, and keeps a mirror pod in the API server for each.
//
// A [Reader] reports all valid pods of the directory when a file has changed, and invalid files once. [Mirrors] creates and deletes the
// mirror pods. The package owns the annotations by which static pods and their mirrors are known. Which static pods run is the matter of
// the agent: neither part needs the API server for a pod to start.
package static
