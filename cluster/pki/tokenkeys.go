package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// Files of the keys of tokens.
const (
	tokenKeyFile    = "sa.key" // signs
	tokenPublicFile = "sa.pub" // all that verify, once there are several
	madeHeader      = "Made"   // of a key in tokenPublicFile, in RFC 3339
)

// TokenKeys are the keys of service-account tokens: one signs, and tokens of all are accepted.
type TokenKeys struct {
	Key    *ecdsa.PrivateKey
	Made   time.Time          // of Key
	Former []*ecdsa.PublicKey // newest first
}

// Equal reports whether both have the same keys.
func (k *TokenKeys) Equal(other *TokenKeys) bool {
	return k.Key.Equal(other.Key) && slices.EqualFunc(k.Former, other.Former, func(a, b *ecdsa.PublicKey) bool { return a.Equal(b) })
}

// OpenTokenKeys returns the keys in dir. A key that signs is made if there is none.
func OpenTokenKeys(dir string) (*TokenKeys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the cluster's keys: %w", err)
	}
	path := filepath.Join(dir, tokenKeyFile)
	key, err := keyAt(path)
	if err != nil {
		return nil, err
	}
	k := &TokenKeys{Key: key}
	if info, err := os.Stat(path); err == nil {
		k.Made = info.ModTime()
	}
	path = filepath.Join(dir, tokenPublicFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the public keys of tokens: %w", err)
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return k, nil
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		p, ok := public.(*ecdsa.PublicKey)
		if !ok || p.Curve != elliptic.P256() {
			return nil, fmt.Errorf("%s must contain ECDSA keys on the curve P-256, got a %T", path, public)
		}
		if !p.Equal(key.Public()) {
			k.Former = append(k.Former, p)
			continue
		}
		if made, err := time.Parse(time.RFC3339, block.Headers[madeHeader]); err == nil {
			k.Made = made
		}
	}
}

// write makes the file of the public keys: those of k, after a new one if that is not nil.
func (k *TokenKeys) write(dir string, next *ecdsa.PublicKey, now time.Time) error {
	var data bytes.Buffer
	add := func(key *ecdsa.PublicKey, made time.Time) error {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return err
		}
		block := &pem.Block{Type: "PUBLIC KEY", Bytes: der}
		if !made.IsZero() {
			block.Headers = map[string]string{madeHeader: made.UTC().Format(time.RFC3339)}
		}
		return pem.Encode(&data, block)
	}
	if next != nil {
		if err := add(next, now); err != nil {
			return err
		}
	}
	if err := add(&k.Key.PublicKey, k.Made); err != nil {
		return err
	}
	for _, key := range k.Former {
		if err := add(key, time.Time{}); err != nil {
			return err
		}
	}
	return wholefile.Write(filepath.Join(dir, tokenPublicFile), data.Bytes(), 0o600, wholefile.Durable)
}
