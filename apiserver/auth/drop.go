package auth

import (
	"net/http"
	"strings"
)

// DropCredentials removes everything by which a user has said who it is from a header that is passed on: the receiver must not
// be able to act as the user.
func DropCredentials(h http.Header) {
	h.Del("Authorization")
	for name := range h {
		// Some servers take underscores for hyphens.
		as := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if strings.HasPrefix(as, "Impersonate-") || strings.HasPrefix(as, "X-Remote-") {
			delete(h, name)
		}
	}
	if tokens, others := protocols(h); len(tokens) > 0 {
		h.Set(protocolHeader, strings.Join(others, ", "))
	}
}
