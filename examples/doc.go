// Package examples holds the manifests that the README and `sampan demo` use.
//
// They are files, so that users can read and apply them, and embedded, so that the
// demo needs no file beside the program. They work on any Kubernetes cluster that has
// the demo images.
package examples
