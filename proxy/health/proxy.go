package health

import (
	"net/http"
	"time"
)

// A Subject is the proxy whose health is reported; [proxy.Proxy] is one.
type Subject interface {
	// Healthy reports whether the rules are as wanted, or will be in a moment.
	Healthy() bool

	// Eligible reports whether the node should get new traffic: it is not about to be removed.
	Eligible() bool

	// Updated returns when the rules were last made or changed.
	Updated() time.Time
}

type state struct {
	LastUpdated  string `json:"lastUpdated"`
	CurrentTime  string `json:"currentTime"`
	NodeEligible *bool  `json:"nodeEligible,omitempty"`
}

// Handler serves /healthz, which fails if the node is about to be removed, and /livez, which does
// not.
func Handler(s Subject) http.Handler {
	mux := http.NewServeMux()
	now := func() state {
		return state{LastUpdated: s.Updated().UTC().String(), CurrentTime: time.Now().UTC().String()}
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		is, eligible := now(), s.Eligible()
		is.NodeEligible = &eligible
		write(w, s.Healthy() && eligible, is, nil)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { write(w, s.Healthy(), now(), nil) })
	return mux
}
