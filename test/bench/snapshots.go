package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fill makes ConfigMaps until the cluster has about n objects of users.
func (b *bench) fill(ctx context.Context, from, n int) error {
	const batch = 2000
	file := filepath.Join(b.dir, "objects.yaml")
	defer func() { _ = os.Remove(file) }()
	for ; from < n; from += batch {
		var text bytes.Buffer
		for i := from; i < min(from+batch, n); i++ {
			_, _ = fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%06d, namespace: default}, data: {k: \"%0300d\"}}\n", i, i)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			return err
		}
		if _, err := b.sampan(ctx, "create", "-f", file, "-o", "name"); err != nil {
			return err
		}
	}
	return nil
}

// snapshots measures `sampan snapshot save`. The floor is a copy of the file that it writes, synced as well.
func (b *bench) snapshots(ctx context.Context) error {
	const objects, n = 100_000, 5
	if err := b.fill(ctx, 0, objects); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "bench.snapshot")
	var saves, copies []time.Duration
	for range n {
		began := time.Now()
		if _, err := b.sampan(ctx, "snapshot", "save", file); err != nil {
			return err
		}
		saves = append(saves, time.Since(began))
		began = time.Now()
		if err := copySynced(file, file+".copy"); err != nil {
			return err
		}
		copies = append(copies, time.Since(began))
	}
	b.against(fmt.Sprintf("sampan snapshot save of %d objects, p50", objects), median(saves), median(copies), "<= 1.3 times")
	return nil
}

func copySynced(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// forks measures `sampan up --from`, from the command to its return. The floor is a later start of the same cluster.
func (b *bench) forks(ctx context.Context) error {
	const n = 20
	have := 0
	for _, c := range []struct {
		objects int
		goal    string
	}{{100, "<= 30 ms"}, {10_000, "<= 100 ms"}} {
		if err := b.fill(ctx, have, c.objects); err != nil {
			return err
		}
		have = c.objects
		file := filepath.Join(b.dir, "fork.snapshot")
		if _, err := b.sampan(ctx, "snapshot", "save", file); err != nil {
			return err
		}
		keys := filepath.Join(b.data(), "pki", "encryption.yaml")
		// Later flags go before the ones of the cluster that is copied.
		own := []string{"--name=" + name + "-fork", "--data-dir=" + filepath.Join(b.dir, "fork")}
		run := func(args ...string) (time.Duration, error) {
			began := time.Now()
			_, err := b.sampan(ctx, append(own, args...)...)
			return time.Since(began), err
		}
		var forks, floor []time.Duration
		for range n {
			took, err := run("up", "--from="+file, "--decryption-keys="+keys)
			if err != nil {
				return err
			}
			forks = append(forks, took)
			if _, err := run("down"); err != nil {
				return err
			}
			if took, err = run("up"); err != nil {
				return err
			}
			floor = append(floor, took)
			if _, err := run("down", "--purge"); err != nil {
				return err
			}
		}
		b.against(fmt.Sprintf("sampan up --from a snapshot of %d objects, p50 of %d", c.objects, n), median(forks), median(floor), c.goal)
	}
	return nil
}
