package encryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/nacl/secretbox"
)

// A key encrypts values. It is safe for concurrent use.
type key interface {
	// head begins each value that the key has encrypted, and no value of another key.
	head() string

	// seal returns the head, followed by the encrypted value of the record at that key of the store.
	seal(record string, plain []byte) ([]byte, error)

	// open is the inverse. The data begin with the head. errDamaged means that they were not made by seal for
	// that record.
	open(record string, data []byte) ([]byte, error)

	// current reports whether seal would encrypt a value with the same key as it was encrypted with.
	current(data []byte) bool
}

// errDamaged is returned for a value that was changed, or that belongs to another record.
var errDamaged = errors.New("the value was changed, or copied from another record, after it was encrypted")

const (
	prefix   = "k8s:enc:" // of every value that is encrypted; no plain one begins so
	revision = "s1"       // of the format of what follows

	saltSize    = 16
	counterSize = 8
)

// sealed reports whether a value is encrypted.
func sealed(data []byte) bool { return bytes.HasPrefix(data, []byte(prefix)) }

// headOf returns the head of a key with a secret.
func headOf(provider, name string, secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("sampan fingerprint " + provider))
	return prefix + provider + ":" + revision + ":" + name + ":" + hex.EncodeToString(mac.Sum(nil)[:8]) + ":"
}

// derive returns a key of 32 bytes for one purpose.
func derive(secret, salt []byte, purpose string) []byte {
	k, err := hkdf.Key(sha256.New, secret, salt, "sampan "+purpose, 32)
	if err != nil {
		panic(err) // 32 bytes are not too many
	}
	return k
}

// A secret encrypts with AES-256-GCM. Its own key is derived from the configured one and a salt that each
// process chooses, so that a counter suffices as nonce.
type secret struct {
	value   []byte
	salt    []byte
	aead    cipher.AEAD
	counter atomic.Uint64

	mu    sync.Mutex
	older map[string]cipher.AEAD // guarded by mu; of other salts
}

// maxOlder bounds how many derived keys are remembered. A snapshot usually has those of one process.
const maxOlder = 256

func newSecret(value []byte) (*secret, error) {
	s := &secret{value: value, salt: make([]byte, saltSize), older: map[string]cipher.AEAD{}}
	_, _ = rand.Read(s.salt) // it never fails
	var err error
	s.aead, err = s.derived(s.salt)
	return s, err
}

func (s *secret) derived(salt []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derive(s.value, salt, "aes-256-gcm"))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// with returns the cipher of a salt.
func (s *secret) with(salt []byte) (cipher.AEAD, error) {
	if bytes.Equal(salt, s.salt) {
		return s.aead, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.older[string(salt)]; a != nil {
		return a, nil
	}
	a, err := s.derived(salt)
	if err == nil {
		if len(s.older) == maxOlder {
			clear(s.older)
		}
		s.older[string(salt)] = a
	}
	return a, err
}

// nonceOf returns the nonce for a counter in big endian.
func nonceOf(a cipher.AEAD, counter []byte) []byte {
	nonce := make([]byte, a.NonceSize())
	copy(nonce[len(nonce)-counterSize:], counter)
	return nonce
}

// seal returns: the head, the salt, the counter, the ciphertext.
func (s *secret) seal(head []byte, record string, plain []byte) []byte {
	out := make([]byte, 0, len(head)+saltSize+counterSize+len(plain)+s.aead.Overhead())
	out = append(append(out, head...), s.salt...)
	out = binary.BigEndian.AppendUint64(out, s.counter.Add(1))
	return s.aead.Seal(out, nonceOf(s.aead, out[len(out)-counterSize:]), plain, bound(out, record))
}

// open is the inverse of seal; the head has so many bytes.
func (s *secret) open(head int, record string, data []byte) ([]byte, error) {
	start := head + saltSize + counterSize
	if len(data) < start {
		return nil, errDamaged
	}
	a, err := s.with(data[head : head+saltSize])
	if err != nil {
		return nil, err
	}
	plain, err := a.Open(nil, nonceOf(a, data[start-counterSize:start]), data[start:], bound(data[:start], record))
	if err != nil {
		return nil, errDamaged
	}
	return plain, nil
}

// bound returns the data authenticated beside the value: all that stands before the ciphertext, and the record's key.
func bound(start []byte, record string) []byte {
	b := make([]byte, 0, 4+len(start)+len(record))
	b = binary.BigEndian.AppendUint32(b, uint32(len(start)))
	return append(append(b, start...), record...)
}

// gcmKey is a key of the provider aesgcm.
type gcmKey struct {
	name   []byte // the head
	secret *secret
}

func newGCM(name string, value []byte) (key, error) {
	s, err := newSecret(value)
	return &gcmKey{[]byte(headOf("aesgcm", name, value)), s}, err
}

func (k *gcmKey) head() string        { return string(k.name) }
func (k *gcmKey) current([]byte) bool { return true }

func (k *gcmKey) seal(record string, plain []byte) ([]byte, error) {
	return k.secret.seal(k.name, record, plain), nil
}

func (k *gcmKey) open(record string, data []byte) ([]byte, error) {
	return k.secret.open(len(k.name), record, data)
}

// cbcKey is a key of the provider aescbc: AES-CBC, and HMAC-SHA256 over the result.
type cbcKey struct {
	name  []byte
	block cipher.Block
	mac   []byte
}

func newCBC(name string, value []byte) (key, error) {
	block, err := aes.NewCipher(derive(value, nil, "aes-cbc")[:len(value)])
	return &cbcKey{[]byte(headOf("aescbc", name, value)), block, derive(value, nil, "hmac-sha256")}, err
}

func (k *cbcKey) head() string        { return string(k.name) }
func (k *cbcKey) current([]byte) bool { return true }

func (k *cbcKey) seal(record string, plain []byte) ([]byte, error) {
	pad := aes.BlockSize - len(plain)%aes.BlockSize // PKCS #7
	start := len(k.name) + aes.BlockSize
	out := make([]byte, start+len(plain)+pad, start+len(plain)+pad+sha256.Size)
	copy(out, k.name)
	_, _ = rand.Read(out[len(k.name):start])
	copy(out[start:], plain)
	for i := len(out) - pad; i < len(out); i++ {
		out[i] = byte(pad)
	}
	cipher.NewCBCEncrypter(k.block, out[len(k.name):start]).CryptBlocks(out[start:], out[start:])
	return append(out, k.sum(out, record)...), nil
}

func (k *cbcKey) sum(data []byte, record string) []byte {
	mac := hmac.New(sha256.New, k.mac)
	mac.Write(bound(data, record))
	return mac.Sum(nil)
}

func (k *cbcKey) open(record string, data []byte) ([]byte, error) {
	start, end := len(k.name)+aes.BlockSize, len(data)-sha256.Size
	if end < start+aes.BlockSize || (end-start)%aes.BlockSize != 0 || !hmac.Equal(k.sum(data[:end], record), data[end:]) {
		return nil, errDamaged
	}
	plain := bytes.Clone(data[start:end])
	cipher.NewCBCDecrypter(k.block, data[len(k.name):start]).CryptBlocks(plain, plain)
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize {
		return nil, errDamaged // only the holder of the key can have made it
	}
	return plain[:len(plain)-pad], nil
}

// boxKey is a key of the provider secretbox: XSalsa20 and Poly1305, which authenticate nothing beside the value. So a hash of
// that stands before the value.
type boxKey struct {
	name  []byte
	value [32]byte
}

const boxNonce = 24

func newBox(name string, value []byte) (key, error) {
	if len(value) != 32 {
		return nil, fmt.Errorf("expected key size 32 for secretbox provider, got %d", len(value))
	}
	return &boxKey{[]byte(headOf("secretbox", name, value)), [32]byte(value)}, nil
}

func (k *boxKey) head() string        { return string(k.name) }
func (k *boxKey) current([]byte) bool { return true }

func (k *boxKey) seal(record string, plain []byte) ([]byte, error) {
	out := make([]byte, len(k.name)+boxNonce, len(k.name)+boxNonce+secretbox.Overhead+sha256.Size+len(plain))
	copy(out, k.name)
	nonce := (*[boxNonce]byte)(out[len(k.name):])
	_, _ = rand.Read(nonce[:])
	about := sha256.Sum256(bound(out, record))
	return secretbox.Seal(out, append(about[:], plain...), nonce, &k.value), nil
}

func (k *boxKey) open(record string, data []byte) ([]byte, error) {
	start := len(k.name) + boxNonce
	if len(data) < start {
		return nil, errDamaged
	}
	plain, ok := secretbox.Open(nil, data[start:], (*[boxNonce]byte)(data[len(k.name):start]), &k.value)
	about := sha256.Sum256(bound(data[:start], record))
	if !ok || len(plain) < sha256.Size || !hmac.Equal(plain[:sha256.Size], about[:]) {
		return nil, errDamaged
	}
	return plain[sha256.Size:], nil
}
