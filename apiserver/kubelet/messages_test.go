package kubelet_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// TestLogsInMessages reads a log over a WebSocket, with each subprotocol of upstream.
func TestLogsInMessages(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "one\ntwo\n") }, podOf("n1", "a"))
	for _, tt := range []struct {
		protocols []string
		chosen    string
		decode    func(string) ([]byte, error)
	}{
		{nil, "", func(s string) ([]byte, error) { return []byte(s), nil }},
		{[]string{"other", "binary.k8s.io"}, "binary.k8s.io", func(s string) ([]byte, error) { return []byte(s), nil }},
		{[]string{"base64.binary.k8s.io"}, "base64.binary.k8s.io", base64.StdEncoding.DecodeString},
	} {
		socket := f.socket(t, "/log", tt.protocols...)
		if got := strings.Join(socket.Config().Protocol, ","); got != tt.chosen {
			t.Errorf("the subprotocol of %q is %q, want %q", tt.protocols, got, tt.chosen)
		}
		var log []byte
		for i := 0; ; i++ {
			var message string
			err := websocket.Message.Receive(socket, &message)
			if errors.Is(err, io.EOF) {
				break
			}
			part, decodeErr := tt.decode(message)
			if err = errors.Join(err, decodeErr); err != nil {
				t.Fatal(err)
			}
			if i == 0 && message != "" {
				t.Errorf("the first message is %q, want none", message)
			}
			log = append(log, part...)
		}
		if string(log) != "one\ntwo\n" {
			t.Errorf("with %q the log is %q", tt.protocols, log)
		}
	}
}

// TestUnknownSubprotocolOfLogs asks for messages in a form that there is not.
func TestUnknownSubprotocolOfLogs(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "one\n") }, podOf("n1", "a"))
	config := f.socketConfig(t, "/log", "other")
	if socket, err := config.DialContext(t.Context()); err == nil {
		_ = socket.Close()
		t.Error("the server speaks a protocol called other")
	}
}

// TestLogInMessagesEndsWithItsClient follows a log whose client goes: the request to the node must end.
func TestLogInMessagesEndsWithItsClient(t *testing.T) {
	gone := make(chan struct{})
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		fmt.Fprint(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, podOf("n1", "a"))
	socket := f.socket(t, "/log?follow=true")
	for text := ""; text != "one\n"; {
		if err := websocket.Message.Receive(socket, &text); err != nil {
			t.Fatal(err)
		}
	}
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	<-gone
}

func (f *fixture) socketConfig(t *testing.T, path string, protocols ...string) *websocket.Config {
	t.Helper()
	config, err := websocket.NewConfig(strings.Replace(f.front.URL, "http", "ws", 1)+path, f.front.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = protocols
	return config
}

func (f *fixture) socket(t *testing.T, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	socket, err := f.socketConfig(t, path, protocols...).DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}
