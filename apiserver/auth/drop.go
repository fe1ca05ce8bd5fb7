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
	if protocols := h.Values("Sec-Websocket-Protocol"); len(protocols) > 0 {
		// Browsers send their token as a protocol.
		var kept []string
		for p := range strings.SplitSeq(strings.Join(protocols, ","), ",") {
			if p = strings.TrimSpace(p); !strings.HasPrefix(p, "base64url.bearer.authorization.k8s.io.") {
				kept = append(kept, p)
			}
		}
		h.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
	}
}
