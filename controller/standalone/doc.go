// Package standalone runs the controllers as a separate program, `sampan controllers`, against any Kubernetes API server that
// serves aggregated discovery (v1.30 or later).
//
// In the process of the API server controllers learn from it which resources there are, have a client for each account, and share
// its authorities. Here they learn of resources by discovery, which is read again when a CustomResourceDefinition or an APIService
// changes; they get tokens of their accounts from the server; and keys and certificates are files.
package standalone
