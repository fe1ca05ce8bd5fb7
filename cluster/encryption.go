package cluster

import (
	"context"
	"errors"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/encryption"
)

// openEncryption reads the keys with which records are encrypted on disk.
func (c *cluster) openEncryption() (err error) {
	c.encryption, err = encryption.New(encryption.Options{
		Keys: c.Profile.EncryptionKeys(), Config: c.Settings.Server.Get("encryption-provider-config"), Reload: c.Settings.Server.On("encryption-provider-config-automatic-reload"),
		Changed: func() { c.rewrite() }, Log: c.Log,
	})
	return err
}

// decrypting returns the Decode function of a store. Missing keys are an error, and a damaged record is not.
func (c *cluster) decrypting(l apiserver.Loader) func(key string, data []byte) (store.Value, error) {
	return func(key string, data []byte) (store.Value, error) {
		plain, err := c.encryption.Open(key, data)
		if locked := (*encryption.LockedError)(nil); errors.As(err, &locked) {
			return nil, locked
		}
		if err != nil {
			return l.Damaged(key, data, err), nil
		}
		return l.Decode(key, plain)
	}
}

// recalling returns the Recall function of a store.
func (c *cluster) recalling(l apiserver.Loader) func(key string, data []byte) (store.Value, error) {
	return func(key string, data []byte) (store.Value, error) {
		plain, err := c.encryption.Peek(key, data)
		if err != nil {
			return nil, err
		}
		return l.Decode(key, plain)
	}
}

// startEncryption begins to encrypt, once the store is loaded. Without disk space for a first key the cluster starts, and
// refuses to write values that have to be encrypted.
func (c *cluster) startEncryption(ctx context.Context, s *store.Store) {
	c.rewrite = s.Rewrite
	if err := c.encryption.Save(ctx); err != nil {
		c.Log.ErrorContext(ctx, "Secrets cannot be written", "err", err)
		return
	}
	c.encryption.Prime(ctx)
	if n := c.encryption.Stale(); n > 0 {
		c.Log.InfoContext(ctx, "encrypting records with the current key", "records", n)
		s.Rewrite()
	}
}

// rewritten logs that no file has records with an earlier encryption.
func (c *cluster) rewritten(err error) {
	if err == nil {
		c.Log.Info("all records are encrypted with the current key", "encrypted", c.encryption.Resealed())
	}
}

// healthChecks returns the health checks of KMS plug-ins, with upstream's name, and of an API server that runs alone: it is
// healthy when the objects of every cluster are there.
func (c *cluster) healthChecks(p *controlPlane) []httpserver.Check {
	var all []httpserver.Check
	if c.encryption.HasPlugins() {
		all = append(all, httpserver.Check{Name: "kms-providers", Run: c.encryption.Health})
	}
	if c.alone != nil {
		all = append(all, httpserver.Check{Name: "bootstrap", Run: p.bootstrapped})
	}
	return all
}

// bootstrapped returns an error until the objects of every cluster are there.
func (p *controlPlane) bootstrapped(context.Context) error {
	select {
	case <-p.bootstrap.Ready():
		return nil
	default:
		return errors.New("the objects that every cluster has are not written yet")
	}
}
