package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"hash/crc32"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"
)

// expire KUBECONFIG replaces the client certificates in a kubeconfig of the cluster
// NAME by ones of the same authority that ended yesterday.
func expire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expire KUBECONFIG")
	}
	file := ts.MkAbs(args[0])
	cfg, err := clientcmd.LoadFromFile(file)
	ts.Check(err)
	cert, key, err := expired(filepath.Join(ts.Getenv("DATA"), "pki"))
	ts.Check(err)
	for _, u := range cfg.AuthInfos {
		u.ClientCertificateData, u.ClientKeyData = cert, key
	}
	ts.Check(clientcmd.WriteToFile(*cfg, file))
}

// expired returns a certificate of an administrator that ended yesterday.
func expired(pki string) (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	return issue(pki, own, subject{"kubernetes-admin", "system:masters"}, span{-2 * day, -day})
}

const day = 24 * time.Hour

// A span is a time as seen from now.
type span struct{ begin, end time.Duration }

var valid = span{-time.Hour, day}

// A subject is the user and group in a client certificate.
type subject struct{ name, group string }

// issue makes a client's certificate with the authority of a cluster.
func issue(pki string, own *ecdsa.PrivateKey, who subject, when span) (cert, key []byte, err error) {
	certPEM, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(pki, "ca.key"))
	if err != nil {
		return nil, nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("the authority's files hold no PEM")
	}
	authority, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	authorityKey, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: who.name, Organization: []string{who.group}},
		NotBefore:    time.Now().Add(when.begin),
		NotAfter:     time.Now().Add(when.end),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, own.Public(), authorityKey)
	if err != nil {
		return nil, nil, err
	}
	ownDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: ownDER}), nil
}

// What is known here of the store's files (store/disk/frame.go): a header whose
// last four bytes are the checksum of the rest, with the format version behind
// the magic; then frames that begin with the length of their payload.
const (
	headerSize    = 40
	versionOffset = 8
	frameSize     = 16
)

// change rewrites a file in place.
func change(ts *testscript.TestScript, file string, by func(data []byte) []byte) {
	file = ts.MkAbs(file)
	data, err := os.ReadFile(file)
	ts.Check(err)
	ts.Check(os.WriteFile(file, by(data), 0o600))
}

// flip FILE OFFSET inverts one byte.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	change(ts, args[0], func(data []byte) []byte {
		data[at] ^= 0xff
		return data
	})
}

// format FILE VERSION makes a file of the store look as if another version of the
// program had written it.
func format(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: format FILE VERSION")
	}
	version, err := strconv.ParseUint(args[1], 10, 32)
	ts.Check(err)
	change(ts, args[0], func(data []byte) []byte {
		binary.LittleEndian.PutUint32(data[versionOffset:], uint32(version))
		sum := crc32.Checksum(data[:headerSize-4], crc32.MakeTable(crc32.Castagnoli))
		binary.LittleEndian.PutUint32(data[headerSize-4:], sum)
		return data
	})
}

// tear FILE puts half a frame at the end of a segment of the log, as a crash in the
// middle of a write does.
func tear(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: tear FILE")
	}
	change(ts, args[0], func(data []byte) []byte {
		end := headerSize
		for end+frameSize < len(data) {
			length := int(binary.LittleEndian.Uint32(data[end:]))
			if length == 0 {
				break
			}
			end += frameSize + length
		}
		first := int(binary.LittleEndian.Uint32(data[headerSize:]))
		half := data[headerSize : headerSize+frameSize+first/2]
		return append(data[:end:end], half...)
	})
}
