package unixsocket_test

import (
	"testing"

	"github.com/sampan-io/sampan/internal/unixsocket"
)

func TestPath(t *testing.T) {
	for text, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "/run/containerd/containerd.sock", "/run/crio/crio.sock": "/run/crio/crio.sock",
		"tcp://127.0.0.1:1": "", "containerd.sock": "", "unix://run/x": "", "": "", "npipe:////./pipe/x": "",
	} {
		if got, err := unixsocket.Path(text); got != want && err == nil || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}
