package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sampan-io/sampan/internal/filelock"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// An authority is replaced in two steps, so that no client has to be changed at the moment in which the new one begins to
// sign. [Authority.Prepare] makes the new certificate and adds it to the trusted ones; clients get both.
// [Authority.Activate] makes the new one sign. The old one stays trusted until it expires, or until
// [Authority.DropFormer].
//
// The key of a new authority is in ca-next.key until it signs. Each step is one atomic change of a file that decides, so
// that a process that is killed in between leaves the state of before or of after:
//
//	Prepare   ca-next.key is written, then ca.crt with the new certificate at its end decides
//	Activate  ca.crt is written with the new one first, then the renaming of ca-next.key to ca.key decides
//
// Which certificate of ca.crt signs follows from the key in ca.key, not from the order.
//
// A new key of tokens is in sa.pub before it is in sa.key: servers accept its tokens before one is signed with it.

// Periods of the automatic replacement.
const (
	// An authority is prepared when a fifth of its life is left (two years), and signs when a tenth is left (one year):
	// clients with a copy of the certificates have a year to get the new one, and the new one signs a year before the old
	// one ends.
	prepareShare  = 5
	activateShare = 10

	// tokenKeyLife is the age at which a key of tokens is replaced. Tokens of the former ones stay valid.
	tokenKeyLife = 5 * 365 * 24 * time.Hour
)

// lock excludes other processes from changing the keys in dir, and waits for them. It returns the function that unlocks.
func lock(dir string) (func(), error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(d); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}

// Prepared reports whether a new certificate waits to sign.
func (a *Authority) Prepared() bool { return a.now.Load().next != nil }

// Prepare makes a new certificate of the authority, which is trusted from then on but does not sign. It is an error if there
// is one already.
func (a *Authority) Prepare(now time.Time) error {
	return a.step(now, func(s *state) error {
		if s.next != nil {
			return fmt.Errorf("a new %s is prepared already, valid until %s", a.names.cert, s.next.NotAfter.Format(time.DateOnly))
		}
		key, err := keyAt(a.path(a.names.next)) // one that an interrupted step left is as good as a new one
		if err != nil {
			return err
		}
		cert, err := selfSigned(a.commonName, key, now)
		if err != nil {
			return err
		}
		return wholefile.Write(a.path(a.names.cert), append(bytesOf(s.trusted), cert...), 0o600, wholefile.Durable)
	})
}

// Activate makes the prepared certificate sign. It is an error if there is none.
func (a *Authority) Activate(now time.Time) error {
	return a.step(now, func(s *state) error {
		if s.next == nil {
			return fmt.Errorf("no new %s is prepared", a.names.cert)
		}
		order := []*x509.Certificate{s.next}
		for _, c := range s.trusted {
			if !c.Equal(s.next) {
				order = append(order, c)
			}
		}
		if err := wholefile.Write(a.path(a.names.cert), bytesOf(order), 0o600, wholefile.Durable); err != nil {
			return err
		}
		return wholefile.Rename(a.path(a.names.next), a.path(a.names.key))
	})
}

// DropFormer ends the trust in all certificates but the one that signs and the one that is prepared.
func (a *Authority) DropFormer(now time.Time) error {
	return a.step(now, func(s *state) error {
		keep := []*x509.Certificate{s.cert}
		if s.next != nil {
			keep = append(keep, s.next)
		}
		return wholefile.Write(a.path(a.names.cert), bytesOf(keep), 0o600, wholefile.Durable)
	})
}

// step changes the files under the lock, from their present contents, and reads them again.
func (a *Authority) step(now time.Time, change func(*state) error) error {
	unlock, err := lock(a.dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := a.read(now)
	if err == nil {
		err = change(s)
	}
	if err != nil {
		return err
	}
	_, err = a.Reload(now)
	return err
}

func bytesOf(all []*x509.Certificate) (data []byte) {
	for _, c := range all {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return data
}

// RotateTokenKey makes a new key that signs tokens. Tokens of the former keys stay valid.
func RotateTokenKey(dir string, now time.Time) error {
	return changeTokenKeys(dir, func(k *TokenKeys) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := k.write(dir, &key.PublicKey, now); err != nil {
			return err
		}
		return saveKey(filepath.Join(dir, tokenKeyFile), key)
	})
}

// DropFormerTokenKeys makes tokens of all keys but the one that signs invalid.
func DropFormerTokenKeys(dir string) error {
	return changeTokenKeys(dir, func(k *TokenKeys) error {
		k.Former = nil
		return k.write(dir, nil, time.Time{})
	})
}

func changeTokenKeys(dir string, change func(*TokenKeys) error) error {
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := OpenTokenKeys(dir)
	if err == nil {
		err = change(k)
	}
	return err
}

// Maintain replaces keys and certificates, as their age demands, and returns when it has to be called again at the latest.
func (a *Authority) Maintain(now time.Time) (next time.Time, err error) {
	s := a.now.Load()
	life := s.cert.NotAfter.Sub(s.cert.NotBefore)
	prepare, activate := s.cert.NotAfter.Add(-life/prepareShare), s.cert.NotAfter.Add(-life/activateShare)
	switch {
	case s.next == nil && !now.Before(prepare):
		err = a.Prepare(now)
		next = activate
	case s.next != nil && !now.Before(activate):
		err = a.Activate(now)
		next = now.Add(authorityLife / 2) // far before anything has to be done again
	case s.next != nil:
		next = activate
	default:
		next = prepare
	}
	return next, err
}

// MaintainTokenKey replaces the key of tokens if it is old, and returns when it has to be called again at the latest.
func MaintainTokenKey(dir string, now time.Time) (next time.Time, err error) {
	k, err := OpenTokenKeys(dir)
	if err != nil {
		return time.Time{}, err
	}
	if due := k.Made.Add(tokenKeyLife); now.Before(due) {
		return due, nil
	}
	return now.Add(tokenKeyLife), RotateTokenKey(dir, now)
}
