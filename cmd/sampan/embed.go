//go:build embed

package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// packed is a string because bytes would stand among what can be written, whose pages
// the kernel can't be asked to forget.
//
//go:embed sampan-runtime.zst
var packed string

// runtimeProgram unpacks the container runtime into dir. Its path is always the same, so
// that a running runtime can replace itself with the new file; the version of the file is
// recorded beside it.
func runtimeProgram(dir string) (string, error) {
	path := filepath.Join(dir, "sampan-runtime")
	digest := sha256.New()
	// Not io.WriteString, which would copy all of it first.
	if _, err := io.CopyBuffer(digest, struct{ io.Reader }{strings.NewReader(packed)}, make([]byte, 64<<10)); err != nil {
		return "", err
	}
	want := hex.EncodeToString(digest.Sum(nil))
	if have, err := os.ReadFile(path + ".sha256"); err == nil && string(have) == want {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	if err := unpack(path); err != nil {
		return "", fmt.Errorf("unpacking the container runtime into %s: %w", dir, err)
	}
	// Written last: a crash in between unpacks once more.
	if err := os.WriteFile(path+".sha256", []byte(want), 0o600); err != nil {
		return "", fmt.Errorf("unpacking the container runtime into %s: %w", dir, err)
	}
	return path, nil
}

// unpack makes the file whole or not at all; one that is being executed is
// replaced, not changed.
func unpack(path string) error {
	r, err := zstd.NewReader(strings.NewReader(packed))
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.CreateTemp(filepath.Dir(path), ".sampan-runtime-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong is said already
	}
	return err
}
