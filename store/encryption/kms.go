package encryption

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kms "k8s.io/kms/apis/v2"

	"github.com/sampan-io/sampan/internal/run"
)

// Bounds on a plug-in's answers, and how often it is asked; upstream's.
const (
	maxKeyID       = 1 << 10
	maxSeed        = 1 << 10  // encrypted
	maxAnnotations = 32 << 10 // keys and values together

	healthyInterval   = time.Minute
	unhealthyInterval = 10 * time.Second
	healthyFor        = 20 * time.Second // how long a check counts, if it was good
	unhealthyFor      = 3 * time.Second  // and otherwise
	writableFor       = 3 * time.Minute  // how long a seed may be used after the last good status

	// patience is how long a start waits for a plug-in, which the system may start at the same time.
	patience = 30 * time.Second

	// maxSeeds bounds how many decrypted seeds are remembered.
	maxSeeds = 1024
)

// A plugin is a KMS provider: a plug-in with the API v2, at a Unix socket. The protocol has no notifications, so its
// status, with the ID of its current key, is asked for once in a minute.
type plugin struct {
	name     string
	endpoint string
	timeout  time.Duration
	prefix   []byte
	log      *slog.Logger
	now      func() time.Time

	conn   *grpc.ClientConn
	client kms.KeyManagementServiceClient

	state   atomic.Pointer[kmsState] // what seal uses; nil before the first good status
	patient atomic.Bool              // the cluster is starting, and so may be the plug-in

	checking sync.Mutex // held during a call of the plug-in for the status
	lastErr  error      // guarded by checking; of the last check
	lastAt   time.Time  // guarded by checking; zero: never

	mu    sync.Mutex
	seeds map[string]*secret // guarded by mu; by the header of the values
}

// kmsState is a seed that the plug-in has encrypted. It is not changed.
type kmsState struct {
	keyID  string
	header []byte // the head, and the plug-in's data to decrypt the seed
	seed   *secret
	until  time.Time // writes fail after this
}

func newPlugin(c *kmsConfig, log *slog.Logger) (*plugin, error) {
	conn, err := grpc.NewClient(c.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("KMS provider %s: %w", c.Name, err)
	}
	return &plugin{
		name: c.Name, endpoint: c.Endpoint, timeout: c.Timeout.Duration, prefix: []byte(prefix + "kms:" + revision + ":" + c.Name + ":"),
		log: log, now: time.Now,
		conn: conn, client: kms.NewKeyManagementServiceClient(conn), seeds: map[string]*secret{},
	}, nil
}

func (p *plugin) close() { _ = p.conn.Close() }

func (p *plugin) head() string { return string(p.prefix) }

func (p *plugin) seal(record string, plain []byte) ([]byte, error) {
	s := p.state.Load()
	if s == nil || p.now().After(s.until) {
		return nil, fmt.Errorf("KMS provider %s has no valid key: the plug-in at %s is not healthy", p.name, p.endpoint)
	}
	return s.seed.seal(s.header, record, plain), nil
}

func (p *plugin) current(data []byte) bool {
	s := p.state.Load()
	h, _, err := p.parse(data)
	return s == nil || err == nil && h.keyID == s.keyID
}

func (p *plugin) open(record string, data []byte) ([]byte, error) {
	h, size, err := p.parse(data)
	if err != nil {
		return nil, errDamaged
	}
	seed, err := p.seedOf(h, data[:size])
	if err != nil {
		return nil, err
	}
	return seed.open(size, record, data)
}

// A header holds a plug-in's data to decrypt a seed.
type header struct {
	keyID       string
	seed        []byte // encrypted
	annotations map[string][]byte
}

func (h *header) append(b []byte) []byte {
	piece := func(p []byte) { b = append(binary.AppendUvarint(b, uint64(len(p))), p...) }
	piece([]byte(h.keyID))
	piece(h.seed)
	b = binary.AppendUvarint(b, uint64(len(h.annotations)))
	for _, name := range slices.Sorted(maps.Keys(h.annotations)) {
		piece([]byte(name))
		piece(h.annotations[name])
	}
	return b
}

// parse returns the header of a value, and how many bytes there are before the salt.
func (p *plugin) parse(data []byte) (h header, size int, err error) {
	rest, ok := bytes.CutPrefix(data, p.prefix)
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			ok, rest = false, nil
			return 0
		}
		rest = rest[size:]
		return n
	}
	piece := func() []byte {
		n := number()
		if n > uint64(len(rest)) {
			ok = false
			return nil
		}
		b := rest[:n]
		rest = rest[n:]
		return b
	}
	h.keyID, h.seed = string(piece()), piece()
	h.annotations = map[string][]byte{}
	for n := number(); n > 0 && ok; n-- {
		name := string(piece())
		h.annotations[name] = piece()
	}
	if !ok {
		return h, 0, errDamaged
	}
	return h, len(data) - len(rest), nil
}

// seedOf returns the decrypted seed of values with such a header, for which it may have to ask the plug-in.
func (p *plugin) seedOf(h header, raw []byte) (*secret, error) {
	if s := p.state.Load(); s != nil && bytes.Equal(s.header, raw) {
		return s.seed, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.seeds[string(raw)]; s != nil {
		return s, nil
	}
	timeout := p.timeout
	if p.patient.Load() {
		timeout = max(timeout, patience)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout) //nolint:forbidigo // a store is loaded without one
	defer cancel()
	r, err := p.client.Decrypt(ctx, &kms.DecryptRequest{Ciphertext: h.seed, Uid: string(uuid.NewUUID()), KeyId: h.keyID, Annotations: h.annotations}, grpc.WaitForReady(true))
	if err != nil {
		return nil, &LockedError{fmt.Sprintf("the plug-in of the KMS provider %s at %s did not decrypt the key with ID hash %s: %v. Start it before the cluster. Nothing was changed", p.name, p.endpoint, hash(h.keyID), err)}
	}
	s, err := newSecret(r.GetPlaintext())
	if err != nil {
		return nil, err
	}
	if len(p.seeds) == maxSeeds {
		clear(p.seeds)
	}
	p.seeds[string(raw)] = s
	return s, nil
}

// hash returns a key ID as logs and messages show it, as upstream does.
func hash(keyID string) string {
	sum := sha256.Sum256([]byte(keyID))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// run asks for the status until ctx ends. changed is called when there is another key.
func (p *plugin) run(ctx context.Context, changed func()) {
	for failing := false; ; {
		before := p.state.Load()
		err := p.check(ctx, 0)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			p.log.WarnContext(ctx, "the plug-in of a KMS provider is not healthy", "name", p.name, "err", err)
		} else if err == nil && failing {
			p.log.InfoContext(ctx, "the plug-in of a KMS provider is healthy again", "name", p.name)
		}
		failing = err != nil
		if after := p.state.Load(); before != nil && after != nil && before.keyID != after.keyID {
			p.log.InfoContext(ctx, "a KMS provider has another key", "name", p.name, "keyIDHash", hash(after.keyID))
			changed()
		}
		pause := healthyInterval
		if failing {
			pause = unhealthyInterval
		}
		if !run.Pause(ctx, pause) {
			return
		}
	}
}

// check returns whether the plug-in is healthy. The result of the last check is good for a while, if fresh is not 0.
func (p *plugin) check(ctx context.Context, fresh time.Duration) error {
	p.checking.Lock()
	defer p.checking.Unlock()
	valid := healthyFor
	if p.lastErr != nil {
		valid = unhealthyFor
	}
	if !p.lastAt.IsZero() && p.now().Sub(p.lastAt) < min(valid, fresh) {
		return p.lastErr
	}
	p.lastErr = p.status(ctx)
	p.lastAt = p.now()
	return p.lastErr
}

// status asks for the status, and makes a new seed if the plug-in has a new key.
func (p *plugin) status(ctx context.Context) error {
	until := p.now().Add(writableFor)
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := p.client.Status(call, &kms.StatusRequest{})
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", p.name, err)
	}
	var errs []error
	if r.GetHealthz() != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", r.GetHealthz()))
	}
	if v := r.GetVersion(); v != "v2" && v != "v2beta1" {
		errs = append(errs, fmt.Errorf("expected KMSv2 API version v2, got %s", v))
	}
	if err := checkKeyID(r.GetKeyId()); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, p.renew(ctx, r.GetKeyId(), until))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", p.name, err)
	}
	return nil
}

func checkKeyID(id string) error {
	if id == "" || len(id) > maxKeyID {
		return fmt.Errorf("got a KMSv2 KeyID of %d bytes, want 1 to %d", len(id), maxKeyID)
	}
	return nil
}

// renew prolongs the use of the seed, or has another one encrypted if the key is another.
func (p *plugin) renew(ctx context.Context, keyID string, until time.Time) error {
	if s := p.state.Load(); s != nil && s.keyID == keyID {
		next := *s
		next.until = until
		p.state.Store(&next)
		return nil
	}
	value := make([]byte, 32)
	_, _ = rand.Read(value)
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := p.client.Encrypt(call, &kms.EncryptRequest{Plaintext: value, Uid: string(uuid.NewUUID())})
	switch {
	case err != nil:
		return fmt.Errorf("failed to encrypt a seed: %w", err)
	case r.GetKeyId() != keyID:
		return fmt.Errorf("the status has the key ID hash %s, but Encrypt has %s", hash(keyID), hash(r.GetKeyId()))
	case len(r.GetCiphertext()) == 0 || len(r.GetCiphertext()) > maxSeed:
		return fmt.Errorf("the encrypted seed has %d bytes, want 1 to %d", len(r.GetCiphertext()), maxSeed)
	}
	if err := checkAnnotations(r.GetAnnotations()); err != nil {
		return err
	}
	seed, err := newSecret(value)
	if err != nil {
		return err
	}
	h := header{keyID: keyID, seed: r.GetCiphertext(), annotations: r.GetAnnotations()}
	p.state.Store(&kmsState{keyID: keyID, header: h.append(bytes.Clone(p.prefix)), seed: seed, until: until})
	return nil
}

func checkAnnotations(annotations map[string][]byte) error {
	size := 0
	for name, value := range annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), name); len(errs) > 0 {
			return errs.ToAggregate()
		}
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations)
	}
	return nil
}
