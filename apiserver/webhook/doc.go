// Package webhook calls webhooks: HTTPS servers, named by a URL or by a service of the cluster, to which the API server posts
// a review in JSON and which answer with one. Admission webhooks and the conversion of custom resources use it.
//
// A [Client] is for one webhook configuration. It keeps connections for later calls, and has a limit of calls of its own,
// so that a webhook that hangs delays only the requests that need it.
package webhook
