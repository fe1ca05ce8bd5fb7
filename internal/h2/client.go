package h2

import (
	"net/http"

	"golang.org/x/net/http2"
)

// Client lets a transport speak HTTP/2 with servers that offer it, and returns it. The program is built without the implementation
// in net/http, so that ForceAttemptHTTP2 has no effect. TLSClientConfig must not be used elsewhere. The transport must not have been
// given to Client before.
func Client(t *http.Transport) *http.Transport {
	_ = http2.ConfigureTransport(t) // its only error is about a second call
	return t
}
