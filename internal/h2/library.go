//go:build libraryh2

package h2

import (
	"net/http"

	"golang.org/x/net/http2"
)

// Configure lets srv serve HTTP/2 with golang.org/x/net/http2, which is the implementation of net/http, on connections with TLS that
// negotiated "h2". It takes limits from srv, which must not be changed afterwards. This build is a way out if the server of this
// package has a defect.
func Configure(srv *http.Server) {
	_ = http2.ConfigureServer(srv, &http2.Server{MaxConcurrentStreams: defaultStreams}) // its only errors are about cipher suites
}

// defaultStreams is how many requests a connection has at a time if srv does not say.
const defaultStreams = 250
