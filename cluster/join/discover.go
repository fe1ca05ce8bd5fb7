package join

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// A Place is where a cluster is, and how it is known.
type Place struct {
	Server string // URL of the API server
	CA     []byte // PEM
}

// ParseHash reads the hash of a certificate authority in the format of kubeadm, sha256:HEX.
func ParseHash(text string) ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	kind, digits, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(digits)
	if !strings.EqualFold(kind, "sha256") || err != nil || len(raw) != len(sum) {
		return sum, fmt.Errorf("must be sha256: and 64 hexadecimal digits, got %q", text)
	}
	copy(sum[:], raw)
	return sum, nil
}

// Hash returns the hash of a certificate authority: of its public key, so that it stays when the certificate is renewed.
func Hash(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// discoverLimit is how long each of the two requests may take.
const discoverLimit = 15 * time.Second

// Discover finds the cluster whose API server listens at an address, HOST:PORT. One of the hashes must be that of an
// authority of the cluster.
func Discover(ctx context.Context, address string, token Token, hashes [][sha256.Size]byte) (Place, error) {
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} // join-J1
	first, err := readInfo(ctx, address, insecure, token)
	if err != nil {
		return Place{}, err
	}
	roots, err := pool(first.CA)
	if err != nil {
		return Place{}, fmt.Errorf("the cluster at %s: its ConfigMap kube-public/%s: %w", address, ClusterInfo, err)
	}
	if err := matches(first.CA, hashes); err != nil {
		return Place{}, fmt.Errorf("the cluster at %s: %w", address, err)
	}
	second, err := readInfo(ctx, address, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, token)
	if err != nil {
		return Place{}, err
	}
	if first.Server != second.Server || !bytes.Equal(first.CA, second.CA) {
		return Place{}, fmt.Errorf("the cluster at %s gives two different answers: something between this machine and the cluster changes them", address)
	}
	return second, nil
}

// matches returns an error unless an authority has one of the hashes.
func matches(ca []byte, hashes [][sha256.Size]byte) error {
	var found []string
	for rest := ca; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if slices.Contains(hashes, sha256.Sum256(c.RawSubjectPublicKeyInfo)) {
			return nil
		}
		found = append(found, Hash(c))
	}
	return fmt.Errorf("its certificate authority has the hash %s, which is not that of --ca-cert-hash: either the hash is that of another cluster, or this is not the cluster that it claims to be", strings.Join(found, " and "))
}

// readInfo reads where the cluster is, and checks the signature.
func readInfo(ctx context.Context, address string, config *tls.Config, token Token) (Place, error) {
	info, err := getInfo(ctx, address, config)
	if err != nil {
		return Place{}, err
	}
	signature, signed := info.Data["jws-kubeconfig-"+token.ID]
	if !signed {
		return Place{}, fmt.Errorf("the cluster at %s has no token %s for joining: it does not exist, has expired, or was created a moment ago; `sampan token create --print-join-command` makes one where an administrator's kubeconfig is", address, token.ID)
	}
	content := info.Data[KubeconfigKey]
	if err := token.verify(content, signature); err != nil {
		return Place{}, fmt.Errorf("the cluster at %s does not know the secret of token %s: either the token is wrong, or this is not the cluster that it claims to be: %w", address, token.ID, err)
	}
	c, err := clientcmd.Load([]byte(content))
	if err == nil && (c.Clusters[""] == nil || c.Clusters[""].Server == "") {
		err = errors.New("there is no cluster in it")
	}
	if err != nil {
		return Place{}, fmt.Errorf("the cluster at %s: the kubeconfig of its ConfigMap kube-public/%s: %w", address, ClusterInfo, err)
	}
	return Place{Server: c.Clusters[""].Server, CA: c.Clusters[""].CertificateAuthorityData}, nil
}

// getInfo reads the ConfigMap. There is no user yet as whom a client could ask.
func getInfo(ctx context.Context, address string, config *tls.Config) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverLimit)
	defer cancel()
	fail := func(err error) (*corev1.ConfigMap, error) {
		if clock := new(x509.CertificateInvalidError); errors.As(err, clock) && clock.Reason == x509.Expired {
			now := time.Now()
			if now.Before(clock.Cert.NotBefore) {
				return nil, fmt.Errorf("the certificate of the cluster at %s is not valid before %s, but the clock of this machine says %s: set the clock", address, clock.Cert.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
			}
			return nil, fmt.Errorf("the certificate of the cluster at %s expired at %s; the clock of this machine says %s", address, clock.Cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
		return nil, fmt.Errorf("cannot reach the cluster at %s: %w", address, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/api/v1/namespaces/kube-public/configmaps/"+ClusterInfo, http.NoBody)
	if err != nil {
		return fail(err)
	}
	r.Header.Set("Accept", "application/json")
	transport := &http.Transport{TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: discoverLimit}).DialContext, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(resp.Body, most))
	switch {
	case err != nil:
		return fail(err)
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("the cluster at %s does not let anyone read where it is (%s); it must serve anonymous requests and permit them to get the ConfigMap kube-public/%s", address, resp.Status, ClusterInfo)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("machines cannot join the cluster at %s: it has no ConfigMap kube-public/%s; start it with `sampan up --advertise-address=ADDRESS`", address, ClusterInfo)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the server at %s answers %s to a request for the ConfigMap kube-public/%s", address, resp.Status, ClusterInfo)
	}
	info := &corev1.ConfigMap{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, fmt.Errorf("the server at %s is no API server: %w", address, err)
	}
	return info, nil
}

// pool returns the authorities in PEM.
func pool(ca []byte) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(ca) {
		return nil, errors.New("it has no certificate of an authority")
	}
	return p, nil
}

// ParseAddress checks where an API server listens: HOST:PORT, or a host with the usual port.
func ParseAddress(text string) (string, error) {
	const usual = "6443"
	if strings.Contains(text, "://") {
		return "", fmt.Errorf("must be HOST:PORT, got %q", text)
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		text = net.JoinHostPort(strings.Trim(text, "[]"), usual)
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, "/ @?#") || cmp.Or(port, "0") == "0" {
		return "", fmt.Errorf("must be HOST:PORT, got %q", text)
	}
	return text, nil
}
