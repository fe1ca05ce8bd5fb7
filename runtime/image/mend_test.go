package image

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDamagedLayerIsUnpackedAgain opens a store after a power cut that left records of layers empty.
func TestDamagedLayerIsUnpackedAgain(t *testing.T) {
	s, m := openStore(t), &memory{}
	layers := [][]byte{layer(t, dir("bin"), file("bin/x", "one")), layer(t, file("bin/y", "two"))}
	m.add(t, "v1", dockerManifest, layers, gzipped, nil)
	img, err := pullInto(t, s, pulled, m)
	if err != nil {
		t.Fatal(err)
	}
	again := func() *Store {
		t.Helper()
		s, err := Open(Options{Dir: s.Dir()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, l := range img.Layers {
		if err := os.WriteFile(filepath.Join(s.layerDir(l.ChainID), "meta.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = again()
	if _, err := s.Get(pulled); err != nil {
		t.Fatal(err)
	}
	chain, err := s.readChain("", img.Layers[1].ChainID)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(chain[0].fs, "bin", "y")); err != nil || string(text) != "two" {
		t.Errorf("the upper layer has %q, %v", text, err)
	}

	// Without the blob the image is gone, and can be pulled.
	if err := os.RemoveAll(s.layerDir(img.Layers[0].ChainID)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("blobs", hexOf(img.Layers[0].Blob)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = again()
	if _, err := s.Get(pulled); err == nil {
		t.Error("an image without a layer is there")
	}
	if _, err := pullInto(t, s, pulled, m); err != nil {
		t.Errorf("pulling it again: %v", err)
	}
}
