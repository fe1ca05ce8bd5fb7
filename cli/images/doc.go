// Package images has the verbs about the container images of the node on this machine. They
// talk to its container runtime, not to the API server.
package images
