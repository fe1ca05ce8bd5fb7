package standalone

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// TestUnreachableServerIsRetried has faults for an hour each, which end.
func TestUnreachableServerIsRetried(t *testing.T) {
	nodes := client.Nodes.GroupResource()
	for name, fault := range map[string]error{
		"away":         &client.UnreachableError{Server: "https://192.0.2.1", Err: errors.New("connection refused")},
		"clock":        &client.CertificateError{NotBefore: time.Now().Add(time.Hour)},
		"starting":     apierrors.NewInternalError(errors.New("etcd")),
		"overloaded":   apierrors.NewServiceUnavailable("wait"),
		"unauthorized": apierrors.NewUnauthorized("no such token"),
		"forbidden":    apierrors.NewForbidden(nodes, "one", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := clienttest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
				asked := 0
				api.Intercept(func(clienttest.Request) error { asked++; return fault })
				time.AfterFunc(time.Hour, func() { api.Intercept(nil) })
				var said bytes.Buffer
				began := time.Now()
				node, err := awaitNode(t.Context(), api, "one", slog.New(slog.NewTextHandler(&said, nil)))
				if err != nil || node == nil || node.Name != "one" {
					t.Fatalf("%v, %v", node, err)
				}
				if late := time.Since(began) - time.Hour; late > 45*time.Second || asked > 200 || asked < 60 {
					t.Errorf("the server was asked %d times in an hour, and found %v after it came", asked, late)
				}
				if n := strings.Count(said.String(), "waiting for the API server"); n < 5 || n > 7 || !strings.Contains(said.String(), "the API server answers") {
					t.Errorf("it was said %d times in an hour:\n%s", n, &said)
				}
			})
		})
	}
}

// TestAnotherCauseIsLogged has a server that is away, and then refuses.
func TestAnotherCauseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New(t)
		api.Intercept(func(clienttest.Request) error { return &client.UnreachableError{Err: errors.New("connection refused")} })
		time.AfterFunc(time.Minute, func() {
			api.Intercept(func(clienttest.Request) error { return apierrors.NewUnauthorized("no such token") })
		})
		time.AfterFunc(2*time.Minute, func() { api.Intercept(nil) })
		var said bytes.Buffer
		node, err := awaitNode(t.Context(), api, "one", slog.New(slog.NewTextHandler(&said, nil)))
		if node != nil || err != nil {
			t.Errorf("a node that the server does not know: %v, %v", node, err)
		}
		for what, want := range map[string]int{"connection refused": 1, "no such token": 1, "has no Node of this name": 1} {
			if n := strings.Count(said.String(), what); n != want {
				t.Errorf("%q was said %d times, want %d:\n%s", what, n, want, &said)
			}
		}
	})
}

// TestWaitingEnds when its context is cancelled, and for errors that retries do not fix.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New(t)
		api.Intercept(func(clienttest.Request) error { return &client.UnreachableError{Err: errors.New("connection refused")} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if _, err := awaitNode(ctx, api, "one", slog.New(slog.DiscardHandler)); err != nil || time.Since(began) != time.Hour {
			t.Errorf("told to end after an hour: %v after %v", err, time.Since(began))
		}
		for _, fault := range []error{
			&client.UnreachableError{Err: x509.UnknownAuthorityError{}},
			&client.UnreachableError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}},
			apierrors.NewBadRequest("x"), errors.New("x"),
		} {
			api.Intercept(func(clienttest.Request) error { return fault })
			began := time.Now()
			if _, err := awaitNode(t.Context(), api, "one", slog.New(slog.DiscardHandler)); !errors.Is(err, fault) || time.Since(began) != 0 {
				t.Errorf("%v: %v after %v, want it at once", fault, err, time.Since(began))
			}
		}
	})
}

// TestWrongCredentialsFailAtOnce has a certificate of one key and another key, as data and as files, and
// an authority that is none.
func TestWrongCredentialsFailAtOnce(t *testing.T) {
	cert, key := pair(t)
	_, other := pair(t)
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const server = "https://127.0.0.1:1" // no server listens there, so Run would wait
	for name, tls := range map[string]rest.TLSClientConfig{
		"data":         {CertData: cert, KeyData: other},
		"files":        {CertFile: file("cert", cert), KeyFile: file("other", other)},
		"no such file": {CertFile: file("cert", cert), KeyFile: filepath.Join(dir, "none")},
		"authority":    {CertData: cert, KeyData: key, CAData: []byte("x")},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := Run(ctx, Options{Connect: func() (*rest.Config, error) { return &rest.Config{Host: server, TLSClientConfig: tls}, nil }, Node: "one", Log: slog.New(slog.DiscardHandler)}); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if _, err := connect(&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CertFile: file("cert", cert), KeyFile: file("key", key)}}, "x"); err != nil {
		t.Errorf("those that fit: %v", err)
	}
}

// pair makes a key and a certificate of it.
func pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
