package snapshots_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/snapshot"
)

// filled returns a source of a store in memory with n ConfigMaps.
func filled(b *testing.B, n int) snapshots.Source {
	b.Helper()
	c := apiservertest.Kinds(b)
	kind := c.Resource(configMaps)
	st, err := store.Open(b.Context(), nil, store.Options{Decode: codec.NewLoader(c).Decode, Terms: apiserver.Terms(c)})
	if err != nil {
		b.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(b.Context()), 0)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	b.Cleanup(g.Stop)
	for i := range n {
		item, err := codec.NewItem(kind, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%06d", i), Namespace: "default", UID: "0123456789", Labels: map[string]string{"app": "x"}},
			Data:       map[string]string{"k": fmt.Sprintf("%0300d", i)},
		})
		if err == nil {
			_, err = st.Commit(b.Context(), store.Write{Key: kind.Key("default", fmt.Sprintf("c%06d", i)), Value: item})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return snapshots.Source{
		Freeze: st.Freeze, Seal: func(_ string, data []byte) ([]byte, error) { return data, nil },
		Info: func() snapshot.Info { return snapshot.Info{Cluster: "c", Settings: json.RawMessage(settings)} },
	}
}

// BenchmarkSave saves 100,000 objects. Its floor is the encoding of the objects, which are kept decoded, and SHA-256.
func BenchmarkSave(b *testing.B) {
	source := filled(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := source.Write(b.Context(), io.Discard, false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode encodes the same objects, without a snapshot.
func BenchmarkEncode(b *testing.B) {
	source := filled(b, 100_000)
	state := source.Freeze()
	for b.Loop() {
		var saver codec.Saver
		for rec := range state.All() {
			if _, ok := saver.Saved(rec.Value); !ok {
				b.Fatal("unreadable")
			}
		}
	}
}

// BenchmarkFreeze is the time that a save holds up writes.
func BenchmarkFreeze(b *testing.B) {
	source := filled(b, 100_000)
	for b.Loop() {
		source.Freeze()
	}
}

// BenchmarkRestore makes the directory of an independent cluster with 10,000 objects, and BenchmarkLoad loads it.
func BenchmarkRestore(b *testing.B) {
	data := taken(b, 10_000)
	for b.Loop() {
		restored(b, data)
	}
}

func BenchmarkLoad(b *testing.B) {
	p := restored(b, taken(b, 10_000))
	c := apiservertest.Kinds(b)
	for b.Loop() {
		backend, err := disk.Open(filepath.Join(p, "store"), disk.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := store.Open(b.Context(), backend, store.Options{Decode: codec.NewLoader(c).Decode, Terms: apiserver.Terms(c)}); err != nil {
			b.Fatal(err)
		}
		_ = backend.Close()
	}
}

func taken(b *testing.B, n int) []byte {
	b.Helper()
	var out bytes.Buffer
	if _, err := filled(b, n).Write(b.Context(), &out, true); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

// restored returns the data directory of a new cluster.
func restored(b *testing.B, data []byte) string {
	b.Helper()
	p := profile(b.TempDir())
	if _, err := snapshots.Restore(b.Context(), bytes.NewReader(data), snapshots.Restoration{Profile: p, Settings: asked}); err != nil {
		b.Fatal(err)
	}
	return p.DataDir
}
