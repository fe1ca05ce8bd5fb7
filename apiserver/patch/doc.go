// Package patch applies patches to objects in JSON: JSON patch (RFC 6902), JSON merge patch (RFC
// 7386) and Kubernetes' strategic merge patch, whose merge keys come from the struct tags of the
// typed object.
//
// It computes new JSON from old and does not depend on requests and stores. Errors are API status
// errors. Server-side apply is in package managed.
package patch
