// Package api is the gRPC service of sampan-runtime in addition to CRI, on the same unix socket: import and export of
// images as a stream, the state that the runtime found when it started, and the restart in place.
//
// The Go code is generated from runtime.proto and checked in. Nothing but names belongs here besides.
package api

//go:generate sh -c "protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative runtime.proto"

// AttachSince is the name of gRPC metadata of CRI's call Attach: a time in RFC 3339, with nanoseconds. The client gets first
// what the container wrote after that time. Other runtimes ignore it.
const AttachSince = "sampan-attach-since"

// RuntimeName is the name of Sampan's runtime in the answer to Version.
const RuntimeName = "sampan-runtime"
