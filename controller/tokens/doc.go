// Package tokens holds the controllers of service account tokens in Secrets of type kubernetes.io/service-account-token: one
// fills in the Secrets that users create, and deletes those of deleted service accounts; the other marks tokens that
// earlier versions of Kubernetes made on their own and that are unused for a year, and deletes them later.
package tokens
