package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// webhook serves an admission webhook over HTTPS on loopback until the script ends: webhook VARIABLE. It sets VARIABLE to its URL and
// VARIABLE_CA to its certificate for caBundle. The path says what it answers: /allow, /deny, /label and /sidecar
// (patches), /garbage.
func webhook(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: webhook VARIABLE")
	}
	certificate, err := selfSigned()
	ts.Check(err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(answerReview))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}} // the client has the minimum
	s.StartTLS()
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL)
	ts.Setenv(args[0]+"_CA", base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})))
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func answerReview(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request, _ := review["request"].(map[string]any)
	response := map[string]any{"uid": request["uid"], "allowed": true}
	patch := func(text string) {
		response["patchType"], response["patch"] = "JSONPatch", base64.StdEncoding.EncodeToString([]byte(text))
	}
	switch {
	case r.URL.Path == "/deny":
		response["allowed"] = false
		response["status"] = map[string]any{"code": http.StatusForbidden, "message": "not on this ship"}
		response["warnings"] = []string{"the captain has been told"}
	case r.URL.Path == "/garbage":
		_, _ = io.WriteString(w, "<html>")
		return
	case r.URL.Path == "/label":
		patch(`[{"op":"add","path":"/metadata/labels","value":{"hooked":"` + strings.ToLower(request["operation"].(string)) + `"}}]`)
	case r.URL.Path == "/sidecar":
		patch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"sidecar:v1"}}]`)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
}
