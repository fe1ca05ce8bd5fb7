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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestObjectThatDefaultsMakeLargeIsRefused sends bodies of less than 3 MB that defaults make larger.
func TestObjectThatDefaultsMakeLargeIsRefused(t *testing.T) {
	f := serve(t)
	with := func(containers int) map[string]any {
		all := make([]map[string]any, containers)
		for i := range all {
			all[i] = map[string]any{"name": fmt.Sprint("c", i), "image": "i"}
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"containers": all}}
	}
	const words = "the object would have "
	f.refused(f.do("POST", pods, with(60_000)), 413, metav1.StatusReasonRequestEntityTooLarge, words)
	f.refused(f.do("POST", pods+"?dryRun=All", with(60_000)), 413, metav1.StatusReasonRequestEntityTooLarge, words)
	f.create(configMaps, configMap("a"))
	path := configMaps + "/a"
	var last answer
	for i := range 4 { // none of these bodies is large
		labels := map[string]string{}
		for n := range 8_000 {
			labels[fmt.Sprintf("%d-%d.example.com/%s", i, n, strings.Repeat("k", 60))] = strings.Repeat("v", 60)
		}
		last = f.do("PATCH", path, map[string]any{"metadata": map[string]any{"labels": labels}}, "Content-Type: application/merge-patch+json")
	}
	f.refused(last, 413, metav1.StatusReasonRequestEntityTooLarge, words)
	f.remove(path)
}
