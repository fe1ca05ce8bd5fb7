// Package h2 serves HTTP/2 (RFC 9113) for an [http.Server], in place of the implementation in net/http.
//
// There, a goroutine reads the frames of a connection, a second one keeps its state, and each request has a third: what one hands
// to the next costs more than the request itself. Here one goroutine reads, and each request has one that also writes its answer.
// Frames are collected in one buffer, and the goroutine that adds a frame while none is being sent sends all of them: answers that are
// ready at the same time share a TLS record and a system call.
//
// Frames and header compression are those of golang.org/x/net/http2. What a client may hold is bounded: streams, bytes of headers,
// bytes of bodies that nothing has read yet, and bytes that wait to be sent.
package h2
