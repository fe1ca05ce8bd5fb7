package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
)

// TestRefusedBodyLeavesTheAnswer sends a body that is too large as simple clients do: all of it before they read.
func TestRefusedBodyLeavesTheAnswer(t *testing.T) {
	web := httptest.NewServer(apiservertest.Open(t, nil).HandlerAs(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}))
	t.Cleanup(web.Close)
	c, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const size = 12 << 20
	answers := bufio.NewReader(c)
	for range 2 { // the connection can be used again
		_, err := fmt.Fprintf(c, "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(c, io.LimitReader(neverEnding('x'), size)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(text), "Request entity too large: limit is 3145728") {
			t.Errorf("%s %s (%v)", resp.Status, text, err)
		}
	}
}

// neverEnding yields one byte for ever.
type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}
