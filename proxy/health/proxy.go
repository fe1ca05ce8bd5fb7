package health

import (
	"net/http"
	"time"
)

// A Subject is what is asked about; [proxy.Proxy] is one.
type Subject interface {
	// Healthy reports whether the rules are what they are to be, or will be in a moment.
	Healthy() bool

	// Eligible reports whether the node is to get new traffic: it is not about to go.
	Eligible() bool

	// Updated is when the rules were made or changed last.
	Updated() time.Time
}

type state struct {
	LastUpdated  string `json:"lastUpdated"`
	CurrentTime  string `json:"currentTime"`
	NodeEligible *bool  `json:"nodeEligible,omitempty"`
}

// Handler answers at /healthz, where a node that is about to go says no, and at /livez,
// where it does not.
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
