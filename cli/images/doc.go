// Package images has the command image, which lists, inspects, imports, pulls, saves and removes the container
// images of this machine's node. It calls the container runtime, not the API server.
package images
