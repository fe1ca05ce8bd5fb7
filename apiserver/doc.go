// Package apiserver serves the Kubernetes API over a store.
//
// It assembles the server from its parts, and has the client of this process.
//
// A request goes through three layers:
//
//	handler    HTTP: user, kind, verb and encoding; decodes and encodes bodies (package
//	           httpserver)
//	operation  get, list, create, update, patch, delete, watch on typed objects for
//	           a user: authorization, defaults, admission, validation, the rules of
//	           metadata and of concurrency (package operation)
//	store      an ordered history of keys (package store)
//
// [Local] calls the operations without the HTTP layer: parts of the same program see
// the same results as clients over HTTPS, and share the decoded objects. Which
// kinds there are, and how they differ, is in package catalog. The operations know
// few by name: pods, evictions and budgets, and namespaces when they are removed.
//
//	S1  A write is answered after it was committed, with the committed object.
//	S2  A write that changes nothing writes nothing.
//	S3  Objects that are returned are shared and never changed; objects that are passed
//	    in are copied (Local) or decoded (HTTP) and belong to the request.
//	S4  Every error that leaves an operation is an API status error.
//	S5  The functions that admission added are called exactly once, when the
//	    write has succeeded or failed.
//
// Reads never touch the disk and are always of the newest revision unless another
// one was asked for: "not older than" is then met by definition.
package apiserver
