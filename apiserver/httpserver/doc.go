// Package httpserver serves the Kubernetes API over HTTP/1.1 and HTTP/2.
//
// It finds the user of a request, the object and the verb, waits for a seat, decodes the body and the parameters, has package
// operation perform the request, and encodes the answer.
//
// It owns the resources that a client can hold, and bounds them: connections, bodies, seats of a priority level, answers
// that a slow client reads, watches, and blocking reads. It also serves paths without objects: health checks, metrics,
// profiles and, by handlers of other packages, the documents of discovery and OpenAPI. Package operation decides the
// effect of a request on objects.
package httpserver
