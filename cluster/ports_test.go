package cluster

import "testing"

func TestLoopbackPort(t *testing.T) {
	for text, want := range map[string]int32{
		"": 0, "http://127.0.0.1:9000/audit": 9000, "https://localhost": 443, "http://[::1]": 80, "http://[::ffff:127.0.0.1]:7": 7,
		"https://192.0.2.1:9000": 0, "https://audit.example.com": 0, "%": 0,
	} {
		if got := loopbackPort(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
