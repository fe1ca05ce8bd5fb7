package standalone

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/internal/filewatch"
)

// roots are the certificates of the API server's authority, in PEM. They are read once, as upstream does.
type roots []byte

// CertificatePEM returns them.
func (r roots) CertificatePEM() []byte { return r }

// OnChange does nothing.
func (roots) OnChange(func()) {}

// readRoots reads a file, or without one returns the authority that the kubeconfig names.
func readRoots(file string, cfg *rest.Config) (roots, error) {
	if file == "" {
		cfg = rest.CopyConfig(cfg)
		if err := rest.LoadTLSFiles(cfg); err != nil {
			return nil, err
		}
		return cfg.CAData, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: has no certificate in PEM", file)
	}
	return data, nil
}

// legacyIssuer is the issuer of tokens in Secrets.
const legacyIssuer = "kubernetes/serviceaccount"

// tokenSigner signs the tokens of Secrets. It implements Signer of package controller/tokens.
type tokenSigner struct {
	method jwt.SigningMethod
	key    crypto.Signer
	id     string
}

// readSigner reads a private key, RSA or ECDSA, in PEM.
func readSigner(file string) (*tokenSigner, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &tokenSigner{}
	if s.key, err = parseKey(data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	switch k := s.key.(type) {
	case *rsa.PrivateKey:
		s.method = jwt.SigningMethodRS256
	case *ecdsa.PrivateKey:
		switch k.Curve {
		case elliptic.P256():
			s.method = jwt.SigningMethodES256
		case elliptic.P384():
			s.method = jwt.SigningMethodES384
		case elliptic.P521():
			s.method = jwt.SigningMethodES512
		}
	}
	if s.method == nil {
		return nil, fmt.Errorf("%s: must be an RSA key, or an ECDSA key on P-256, P-384 or P-521", file)
	}
	public, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(public) // the server finds the key by this name, which upstream derives in the same way
	s.id = base64.RawURLEncoding.EncodeToString(sum[:])
	return s, nil
}

// parseKey returns the first private key of a file.
func parseKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("has no private key in PEM")
		}
		var key any
		var err error
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("a key of type %T does not sign", key)
		}
		return signer, nil
	}
}

// legacyClaims are the claims in the token of a Secret.
type legacyClaims struct {
	jwt.RegisteredClaims
	Account    string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Secret     string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
}

// SignLegacy implements Signer of package controller/tokens.
func (s *tokenSigner) SignLegacy(namespace, account string, uid types.UID, secret string) (string, error) {
	token := jwt.NewWithClaims(s.method, legacyClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: legacyIssuer, Subject: "system:serviceaccount:" + namespace + ":" + account},
		Account:          account, AccountUID: uid, Secret: secret, Namespace: namespace,
	})
	token.Header["kid"] = s.id
	signed, err := token.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed, nil
}

// authority signs certificates with a certificate and a key that are files. It implements Authority of package
// controller/certificates.
type authority struct {
	certFile, keyFile string
	now               atomic.Pointer[pair]
}

type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(certFile, keyFile string) (*authority, error) {
	a := &authority{certFile: certFile, keyFile: keyFile}
	return a, a.read()
}

// read reads the files. After an error the authority is as before.
func (a *authority) read() error {
	c, err := tls.LoadX509KeyPair(a.certFile, a.keyFile)
	if err != nil {
		return err
	}
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("a key of type %T does not sign", c.PrivateKey)
	}
	if !c.Leaf.IsCA {
		return fmt.Errorf("%s: is not the certificate of an authority", a.certFile)
	}
	a.now.Store(&pair{c.Leaf, key})
	return nil
}

// follow reads the files again when they change, until ctx is cancelled.
func (a *authority) follow(ctx context.Context, log *slog.Logger) error {
	return filewatch.Follow(ctx, []string{absolute(a.certFile), absolute(a.keyFile)}, func() {
		if err := a.read(); err != nil {
			// A certificate and its key do not change at the same time.
			log.WarnContext(ctx, "reading the certificate and key to sign with failed; using those from before", "err", err)
		}
	})
}

// Sign implements Authority of package controller/certificates.
func (a *authority) Sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	signed := *template
	signed.SerialNumber = serial
	now := a.now.Load()
	return x509.CreateCertificate(rand.Reader, &signed, now.cert, public, now.key)
}

// NotAfter implements Authority of package controller/certificates.
func (a *authority) NotAfter() time.Time { return a.now.Load().cert.NotAfter }
