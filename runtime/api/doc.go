// Package api is the gRPC service that sampan-runtime offers beside CRI on the
// same unix socket: image import and export from a stream, what the runtime
// found when it started, and the restart in place.
//
// The Go code is generated from runtime.proto and checked in; nothing else
// belongs here.
package api

//go:generate sh -c "protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative runtime.proto"
