package waiting

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// TestRefusedWritesAreTheCause ends waits beside a server that takes no writes: the error says so unless the object does.
func TestRefusedWritesAreTheCause(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Error(w, "internal server error: the objects in memory take too much; delete objects", http.StatusInternalServerError)
	}))
	defer s.Close()
	c, err := client.NewREST(&rest.Config{Host: s.URL}, client.RESTOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "the server refuses writes: the objects in memory take too much; delete objects"
	for _, tt := range []struct {
		name   string
		result await.Result
		state  await.State
		cause  string
		want   bool
	}{
		{"timed out", await.TimedOut, await.Waiting, "0/2 pods ready", true},
		{"failed", await.SomeFailed, await.Failed, "0/2 pods ready", true},
		{"the object says it", await.TimedOut, await.Waiting, "FailedCreate: nothing was changed: the objects in memory …", false},
		{"done", await.AllDone, await.Done, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = 0
			e := Ending{request: await.Request{For: await.Ready}, Outcome: await.Outcome{Result: tt.result, Objects: []await.Status{{
				Object: await.Ref{Kind: "StatefulSet", Name: "db"}, Verdict: await.Verdict{State: tt.state, Cause: tt.cause},
			}}}}
			e.askRefused(t.Context(), c)
			err := e.Failure(Talk{})
			if got := err != nil && strings.Contains(err.Error(), want); got != tt.want || asked > 0 != tt.want {
				t.Errorf("%v after %d requests", err, asked)
			}
		})
	}
}
