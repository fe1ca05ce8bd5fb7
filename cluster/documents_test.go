package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/client"
)

func TestDocumentsLimitAnswers(t *testing.T) {
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			if _, err := io.WriteString(w, "12345"); err != nil {
				return
			}
		}
	})
	for most, want := range map[int]string{0: "", 15: "", 14: "GET /x: the answer has more than 14 bytes"} {
		resp, err := documents{server, most}.Do(t.Context(), client.RawRequest{Path: "/x"})
		if want != "" {
			if err == nil || err.Error() != want {
				t.Errorf("limit %d: %v, want %s", most, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("limit %d: %v", most, err)
			continue
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != strings.Repeat("12345", 3) {
			t.Errorf("limit %d: %q %v", most, body, err)
		}
	}
}

// TestDocumentsReportAnEndedContext because what was written until then may be a part of the answer.
func TestDocumentsReportAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "123")
		cancel()
	})
	if _, err := (documents{server: server}).Do(ctx, client.RawRequest{Path: "/x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
