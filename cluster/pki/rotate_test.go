package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/wholefile"
)

func mustOpen(t *testing.T, dir string, now time.Time) *Authority {
	t.Helper()
	a, err := Open(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// trusts reports whether clients that trust the certificates in PEM accept a certificate.
func trusts(t *testing.T, bundle []byte, c *tls.Certificate, now time.Time) bool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificates")
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// good reports whether an authority finds a client certificate good.
func good(t *testing.T, a *Authority, s Subject, c *tls.Certificate, now time.Time) bool {
	t.Helper()
	cert, key, err := PEM(c)
	must(t, err)
	if got := a.Good(s, cert, key, now); got != a.Signed(cert) {
		t.Errorf("Good is %t, Signed is not", got)
	}
	return a.Good(s, cert, key, now)
}

// TestAuthorityRotates checks that at each step the clients of the step before are served, and that other processes follow.
func TestAuthorityRotates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a, other := mustOpen(t, dir, now), mustOpen(t, dir, now)
	changes := 0
	other.OnChange(func() { changes++ })
	subject := Subject{CommonName: "system:node:a"}
	renewed := a.Renewed(subject)
	first, err := renewed.current(now)
	must(t, err)
	before := a.CertificatePEM()
	if a.Activate(now) == nil {
		t.Error("activated without a new certificate")
	}

	must(t, a.Prepare(now))
	prepared := a.CertificatePEM()
	if !a.Prepared() || !bytes.HasPrefix(prepared, before) || len(prepared) <= len(before) {
		t.Error("the new certificate is not beside the old one")
	}
	if a.Prepare(now) == nil {
		t.Error("prepared twice")
	}
	if same, err := renewed.current(now); err != nil || same != first {
		t.Errorf("a certificate was issued anew before the new one signs: %v", err)
	}

	must(t, a.Activate(now))
	second, err := renewed.current(now)
	must(t, err)
	if good(t, a, subject, first, now) || !good(t, a, subject, second, now) {
		t.Error("want certificates to be good that the new authority has signed, and no others")
	}
	if second == first || trusts(t, before, second, now) || !trusts(t, prepared, second, now) || !trusts(t, a.CertificatePEM(), first, now) {
		t.Error("want a certificate of the new authority, and the old one to be accepted")
	}
	if changed, err := other.Reload(now); err != nil || !changed || changes != 1 || !bytes.Equal(other.CertificatePEM(), a.CertificatePEM()) {
		t.Errorf("the other process has not followed: %v, %d changes", err, changes)
	}
	if changed, err := other.Reload(now); err != nil || changed || changes != 1 {
		t.Errorf("a second look is a change: %v, %v", changed, err)
	}
	if again := mustOpen(t, dir, now); !bytes.Equal(again.CertificatePEM(), a.CertificatePEM()) || again.Prepared() {
		t.Error("the next start is not the same")
	}

	must(t, a.DropFormer(now))
	if trusts(t, a.CertificatePEM(), first, now) || !trusts(t, a.CertificatePEM(), second, now) {
		t.Error("want the old authority not to be trusted, and the new one to be")
	}
}

// TestInterruptedRotation leaves the files as a process leaves them that is killed between two writes.
func TestInterruptedRotation(t *testing.T) {
	now := time.Now()
	t.Run("after the key of Prepare", func(t *testing.T) {
		dir := t.TempDir()
		mustOpen(t, dir, now)
		_, err := newKeyAt(filepath.Join(dir, "ca-next.key"))
		must(t, err)
		a := mustOpen(t, dir, now)
		if a.Prepared() {
			t.Error("prepared without a certificate")
		}
		must(t, a.Prepare(now))
		must(t, a.Activate(now))
	})
	t.Run("after the certificates of Activate", func(t *testing.T) {
		dir := t.TempDir()
		a := mustOpen(t, dir, now)
		must(t, a.Prepare(now))
		s := a.now.Load()
		must(t, wholefile.Write(filepath.Join(dir, "ca.crt"), bytesOf([]*x509.Certificate{s.next, s.cert}), 0o600, wholefile.Durable))
		b := mustOpen(t, dir, now)
		if !b.now.Load().cert.Equal(s.cert) || !b.Prepared() {
			t.Error("the new certificate signs without its key")
		}
		must(t, b.Activate(now))
		if !b.now.Load().cert.Equal(s.next) {
			t.Error("the new certificate does not sign")
		}
	})
	t.Run("after the public keys of a token key", func(t *testing.T) {
		dir := t.TempDir()
		k, err := OpenTokenKeys(dir)
		must(t, err)
		next, err := newKeyAt(filepath.Join(t.TempDir(), "x"))
		must(t, err)
		must(t, k.write(dir, &next.PublicKey, now))
		again, err := OpenTokenKeys(dir)
		must(t, err)
		if !again.Key.Equal(k.Key) || len(again.Former) != 1 {
			t.Errorf("%d other keys", len(again.Former))
		}
	})
}

// TestAuthorityIsReplacedInTime lets 30 years pass.
func TestAuthorityIsReplacedInTime(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	a, now := mustOpen(t, dir, start), start
	signs := a.now.Load().cert
	replaced := 0
	for now.Before(start.AddDate(30, 0, 0)) {
		next, err := a.Maintain(now)
		must(t, err)
		if !next.After(now) {
			t.Fatalf("to be called again at %v, now is %v", next, now)
		}
		s := a.now.Load()
		if left := s.cert.NotAfter.Sub(now); left < 300*24*time.Hour {
			t.Fatalf("%v are left at %v", left, now)
		}
		if !s.cert.Equal(signs) {
			if !a.now.Load().pool.Equal(poolOf(signs, s.cert)) {
				t.Error("the old certificate is not trusted for the rest of its life")
			}
			signs, replaced = s.cert, replaced+1
		}
		now = next
	}
	if replaced != 3 {
		t.Errorf("replaced %d times in 30 years", replaced)
	}
}

func poolOf(all ...*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool
}

func TestTokenKeysRotate(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	first, err := OpenTokenKeys(dir)
	must(t, err)
	must(t, RotateTokenKey(dir, now))
	must(t, RotateTokenKey(dir, now.Add(time.Hour)))
	third, err := OpenTokenKeys(dir)
	must(t, err)
	if third.Key.Equal(first.Key) || len(third.Former) != 2 || !third.Former[1].Equal(first.Key.Public()) || !third.Made.Equal(now.Add(time.Hour)) {
		t.Errorf("the keys are %+v", third)
	}
	if next, err := MaintainTokenKey(dir, now.Add(2*time.Hour)); err != nil || !next.Equal(third.Made.Add(tokenKeyLife)) {
		t.Errorf("again at %v, %v", next, err)
	}
	if next, err := MaintainTokenKey(dir, now.Add(tokenKeyLife+2*time.Hour)); err != nil || !next.After(now.Add(2*tokenKeyLife)) {
		t.Errorf("again at %v, %v", next, err)
	}
	must(t, DropFormerTokenKeys(dir))
	last, err := OpenTokenKeys(dir)
	must(t, err)
	if len(last.Former) != 0 || last.Key.Equal(third.Key) || !last.Made.Equal(now.Add(tokenKeyLife+2*time.Hour)) {
		t.Errorf("the keys are %+v", last)
	}
	for name, data := range map[string][]byte{
		"no key":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
		"half a key": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"}),
	} {
		must(t, os.WriteFile(filepath.Join(dir, "sa.pub"), data, 0o600))
		if k, err := OpenTokenKeys(dir); err == nil {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

// TestOpenAfterAPowerCut opens an authority whose certificate is empty, as file systems leave files that were not synced: a new one
// with the same key takes its place. A key cannot be made again.
func TestOpenAfterAPowerCut(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a := mustOpen(t, dir, now)
	must(t, os.Truncate(filepath.Join(dir, "ca.crt"), 0))
	b := mustOpen(t, dir, now)
	if !same(b.now.Load().cert, a.now.Load().key.Public()) {
		t.Error("the new certificate has another key")
	}
	must(t, os.Truncate(filepath.Join(dir, "ca.key"), 0))
	if _, err := Open(dir, now); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ca.key")+" contains no PEM key; restore it from a copy") {
		t.Errorf("without a key: %v", err)
	}
}
