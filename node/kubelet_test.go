package node_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
	nodeserver "github.com/sampan-io/sampan/node/server"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) issue(name string, groups ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// kubelet is a client of one node's API.
type kubelet struct {
	t    *testing.T
	base string
	// token is sent with each request unless it is empty.
	token string
	http  *http.Client
}

func (k kubelet) with(token string) kubelet {
	k.token = token
	return k
}

func (k kubelet) as(ca *authority, certs ...tls.Certificate) kubelet {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool(), Certificates: certs}}
	k.t.Cleanup(transport.CloseIdleConnections)
	k.http = &http.Client{Transport: transport}
	return k
}

func (k kubelet) do(method, path string) (int, string, http.Header) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.base+path, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if k.token != "" {
		req.Header.Set("Authorization", "Bearer "+k.token)
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b)), resp.Header
}

func TestKubeletAPI(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.opts.Runtime = talkative{r.rt}
	r.opts.Listeners, r.opts.LogDir = []net.Listener{l}, t.TempDir()
	r.opts.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue("system:node:n1", "system:nodes")}}
	r.opts.ClientCAs = ca.pool
	stop := r.start()
	defer stop()
	<-r.node.Ready()
	r.create(webPod("web"))
	r.create(webPod("pulls", func(p *corev1.Pod) {
		p.Annotations = map[string]string{simulated.PullError: "no such image"}
		p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	}))
	r.await("web", "ready", isReady)
	r.await("pulls", "in ErrImagePull", waits("ErrImagePull"))

	anybody := kubelet{t: t, base: "https://" + l.Addr().String()}
	server := anybody.as(ca, ca.issue("kube-apiserver-kubelet-client"))
	admin := anybody.as(ca, ca.issue("joe", "system:masters"))
	for _, who := range []struct {
		name string
		kubelet
		code int
	}{
		{"the API server", server, 200},
		{"an administrator", admin, 200},
		{"nobody", anybody.as(ca), 401},
		{"another node", anybody.as(ca, ca.issue("system:node:n2", "system:nodes")), 403},
		{"a stranger", anybody.as(ca, newAuthority(t).issue("kube-apiserver-kubelet-client", "system:masters")), 0},
	} {
		if code, body, _ := who.do("GET", "/healthz"); code != who.code {
			t.Errorf("%s is answered with %d %s, want %d", who.name, code, body, who.code)
		}
	}

	_, body, _ := server.do("GET", "/pods")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 2 || list.Items[1].Status.Phase != corev1.PodRunning {
		t.Errorf("pods are %s, %v", body, err)
	}
	for path, want := range map[string]string{
		"/containerLogs/default/web/web":               "200 simulated container web of pod default/web",
		"/containerLogs/default/web/web?limitBytes=9":  "200 simulated",
		"/containerLogs/default/web/web?tailLines=0":   "200 ",
		"/containerLogs/default/web/web?tailLines=x":   `400 tailLines="x": want a number that is not negative`,
		"/containerLogs/default/web/web?previous=true": `400 previous terminated container "web" in pod "web" not found`,
		"/containerLogs/default/web/none":              `404 container "none" not found in pod "web"`,
		"/containerLogs/default/none/web":              `404 pod "none" does not exist`,
		"/containerLogs/default/pulls/web":             `400 container "web" in pod "pulls" is waiting to start: trying and failing to pull image`,
	} {
		if code, body, _ := server.do("GET", path); want != codeAnd(code, body) {
			t.Errorf("%s is answered with %s, want %s", path, codeAnd(code, body), want)
		}
	}
	code, body, header := server.do("POST", "/run/default/web/web?cmd=ls&cmd=-l&cmd=a%20b")
	if code != 200 || body != "simulated: ls -l a b" || header.Get(nodeserver.ExitCodeHeader) != "0" {
		t.Errorf("run is answered with %d %s %v", code, body, header)
	}

	for _, query := range []string{"command=ls&command=-l&command=a%20b", "cmd=ls%20-l%20a%20b"} {
		if code, body, _ := server.do("POST", "/run/default/web/web?"+query); code != 200 || body != "simulated: ls -l a b" {
			t.Errorf("run?%s is answered with %d %s", query, code, body)
		}
	}
	if got := header.Get(nodeserver.StdoutLengthHeader); got != strconv.Itoa(len(body)+1) || header.Get(nodeserver.OutputLimitHeader) != "" {
		t.Errorf("of the output, %d bytes and a line feed, are said to be %s of standard output, limit %q", len(body), got, header.Get(nodeserver.OutputLimitHeader))
	}
	code, body, header = server.do("POST", "/run/default/web/web?cmd=both")
	if code != 200 || body != "outerror" || header.Get(nodeserver.StdoutLengthHeader) != "3" || header.Get(nodeserver.ExitCodeHeader) != "3" {
		t.Errorf("run is answered with %d %s %v", code, body, header)
	}
	code, body, header = server.do("POST", "/run/default/web/web?cmd=flood")
	if code != 200 || len(body) != 3+16<<20 || header.Get(nodeserver.OutputLimitHeader) != "stderr" {
		t.Errorf("run of a command that writes too much is answered with %d, %d bytes, %v", code, len(body), header)
	}

	// A log that is followed ends with its container; then it is the previous one.
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.base+"/containerLogs/default/web/web?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := bufio.NewReader(resp.Body)
	if line, err := text.ReadString('\n'); err != nil || line != "simulated container web of pod default/web\n" {
		t.Errorf("followed: %q, %v", line, err)
	}
	r.rt.Exit("default", "web", "web", 1)
	if rest, err := io.ReadAll(text); err != nil || len(rest) > 0 {
		t.Errorf("followed: then %q, %v", rest, err)
	}
	r.await("web", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p) })
	if code, body, _ := server.do("GET", "/containerLogs/default/web/web?previous=true"); code != 200 || body == "" {
		t.Errorf("previous log is answered with %d %s", code, body)
	}
}

func codeAnd(code int, body string) string {
	return strings.Join([]string{big.NewInt(int64(code)).String(), body}, " ")
}

// talkative is a runtime in which some commands write to both streams.
type talkative struct{ criclient.Runtime }

func (r talkative) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*cri.ExecSyncResponse, error) {
	switch cmd[0] {
	case "both":
		return &cri.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("error"), ExitCode: 3}, nil
	case "flood":
		return &cri.ExecSyncResponse{Stdout: []byte("out"), Stderr: make([]byte, 16<<20)}, nil
	}
	return r.Runtime.ExecSync(ctx, id, cmd, timeout)
}

// pemOf returns a certificate as clients read it.
func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyOf(t *testing.T, c tls.Certificate) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
