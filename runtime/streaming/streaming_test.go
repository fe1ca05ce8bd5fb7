package streaming

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTokensExpireAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		req := &cri.ExecRequest{ContainerId: "c", Cmd: []string{"x"}, Stdout: true}
		if _, err := s.Exec(req); status.Code(err) != codes.Unavailable {
			t.Errorf("before it serves: %v", err)
		}
		s.setBase("http://127.0.0.1:1")
		answer := func(method, url string) int {
			w := httptest.NewRecorder()
			s.route(w, httptest.NewRequest(method, url, nil))
			return w.Code
		}
		issue := func() string {
			res, err := s.Exec(req)
			if err != nil {
				t.Fatal(err)
			}
			return res.GetUrl()
		}
		url := issue()
		if code := answer(http.MethodGet, url); code == http.StatusNotFound {
			t.Errorf("a new URL: %d", code)
		}
		if code := answer(http.MethodGet, url); code != http.StatusNotFound {
			t.Errorf("a used URL: %d", code)
		}
		if code := answer(http.MethodDelete, issue()); code != http.StatusMethodNotAllowed {
			t.Errorf("DELETE: %d", code)
		}
		old := issue()
		for range maxTokens - 1 {
			issue()
		}
		if _, err := s.Exec(req); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("with %d open requests: %v", maxTokens, err)
		}
		time.Sleep(tokenLife + time.Second)
		if code := answer(http.MethodGet, old); code != http.StatusNotFound {
			t.Errorf("an old URL: %d", code)
		}
		issue()
		issue() // finds all places taken, and frees them
		if len(s.tokens) != 2 {
			t.Errorf("%d tokens are kept, want the two that are good", len(s.tokens))
		}
	})
}
