//go:build embed

package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

//go:embed sampan-runtime.zst
var packed []byte

// runtimeProgram unpacks the container runtime into dir, once per version of it.
func runtimeProgram(dir string) (string, error) {
	sum := sha256.Sum256(packed)
	path := filepath.Join(dir, "sampan-runtime-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	r, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpacking the container runtime: %w", err)
	}
	defer r.Close()
	f, err := os.CreateTemp(dir, ".sampan-runtime-*")
	if err != nil {
		return "", fmt.Errorf("unpacking the container runtime: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("unpacking the container runtime into %s: %w", dir, err)
	}
	return path, nil
}
