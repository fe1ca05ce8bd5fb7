// Command controller is an example of a controller built with controller-runtime, and of its tests: see README.md.
//
// It makes a Deployment and a ConfigMap for each Website, and reports in the Website's status when the Deployment is
// available. Nothing in it is about Sampan: it works on any cluster.
package main
