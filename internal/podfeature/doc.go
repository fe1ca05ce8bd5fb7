// Package podfeature lists the fields of a pod's specification that Sampan's own node agent does not support.
//
// The tables of this package are the only place that says so. The API server turns them into warnings for the client
// that creates a pod or a pod template; the node agent rejects pods by them. To make a feature work, implement it and
// remove its line. A test compares the tables with every field of the API type, so that a new field has to be
// classified first.
package podfeature
