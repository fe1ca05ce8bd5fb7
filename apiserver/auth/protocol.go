package auth

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Browsers cannot set the header Authorization of a WebSocket. They send the token as a subprotocol, in base64url without padding
// after this prefix, beside one that the server can accept.
const (
	protocolHeader = "Sec-WebSocket-Protocol"
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// protocol returns the user of a token among the subprotocols of a WebSocket and removes it from them, or nil if there is none.
func (a *Authenticator) protocol(r *http.Request) (*User, error) {
	if !wsstream.IsWebSocketRequest(r) {
		return nil, nil // the request has no credential
	}
	tokens, others := protocols(r.Header)
	switch {
	case len(tokens) == 0:
		return nil, nil // the same
	case len(tokens) > 1:
		return nil, apierrors.NewUnauthorized("multiple base64.bearer.authorization tokens specified")
	}
	token, err := base64.RawURLEncoding.DecodeString(tokens[0])
	if err != nil || !utf8.Valid(token) {
		return nil, apierrors.NewUnauthorized("invalid base64.bearer.authorization token encoding")
	}
	if len(others) == 0 {
		return nil, apierrors.NewUnauthorized("missing additional subprotocol")
	}
	u, err := a.bearer(r.Context(), string(token))
	if err == nil {
		r.Header.Set(protocolHeader, strings.Join(others, ", "))
	}
	return u, err
}

// protocols returns the tokens, still encoded, and the other subprotocols of a header.
func protocols(h http.Header) (tokens, others []string) {
	for p := range strings.SplitSeq(strings.Join(h.Values(protocolHeader), ","), ",") {
		p = strings.TrimSpace(p)
		if token, ok := strings.CutPrefix(p, bearerProtocol); ok {
			tokens = append(tokens, token)
		} else if p != "" {
			others = append(others, p)
		}
	}
	return tokens, others
}
