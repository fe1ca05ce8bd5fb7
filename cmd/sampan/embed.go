//go:build embed && unix

package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// packed is a string because bytes would stand among what can be written, whose pages
// the kernel can't be asked to forget.
//
//go:embed sampan-runtime.zst
var packed string

// runtimeProgram unpacks the container runtime into dir. Its path is always the same, so
// that a running runtime can replace itself with the new file.
func runtimeProgram(dir string) (string, error) {
	path := filepath.Join(dir, "sampan-runtime")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil // it is unpacked at each start
	}
	if err := install(path, identity(), strings.TrimSpace(string(boot)), unpack); err != nil {
		return "", fmt.Errorf("unpacking the container runtime into %s: %w", dir, err)
	}
	return path, nil
}

// identity returns a text that differs between builds of the runtime: the length of the packed file and its end,
// which has the checksum that zstd makes of the contents (RFC 8878, section 3.1.1). A digest of the whole file
// would cost each start a few milliseconds.
func identity() string {
	const end = 32
	return fmt.Sprintf("%d-%x", len(packed), packed[max(len(packed)-end, 0):])
}

// unpack makes the file whole or not at all; one that is being executed is
// replaced, not changed.
func unpack(path string) error {
	// In one piece: a stream of this window size would copy all of it twice.
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer r.Close()
	program, err := r.DecodeAll([]byte(packed), nil)
	if err != nil {
		return err
	}
	f, err := wholefile.Create(path, 0o755, wholefile.UntilBoot)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := writePieces(f, program); err != nil {
		return err
	}
	return f.Commit()
}

// writePieces writes a program in small pieces. The page cache keeps a large write in pages of up to 2 MiB (large
// folios), and since Linux 6.18 a process that touches one byte of a program maps the whole such page, which then counts as
// its memory. 64 KiB is what the kernel maps at least.
func writePieces(w io.Writer, program []byte) error {
	for piece := range slices.Chunk(program, 64<<10) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
