package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// A change returns the data that an entry of the history gets, and whether it has to be written. Nil removes the data.
type change func(r *raw) (data []byte, changed bool)

// rewrite writes the files of the history again in which change changes entries. A file is replaced by a rename, so
// after a crash or an error each is as it was or as it should be. A file that cannot be changed does not prevent that
// of the others; the first error is returned.
func (a *archive) rewrite(ctx context.Context, change change) error {
	a.files.RLock()
	all, err := a.entries()
	a.files.RUnlock()
	if err != nil || len(all) == 0 {
		return err
	}
	var failed error
	for _, e := range all {
		err := a.rewriteFile(ctx, filepath.Join(a.dir, e.Name()), change)
		switch {
		case errors.Is(err, errInterrupted):
			return err
		case failed == nil && !errors.Is(err, fs.ErrNotExist): // one that does not exist was dropped meanwhile
			failed = err
		}
	}
	if err := syncDir(a.dir); failed == nil {
		failed = err
	}
	return failed
}

// rewriteFile writes a file again if change changes an entry in it.
func (a *archive) rewriteFile(ctx context.Context, name string, change change) error {
	f, err := openPast(name, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	found := false
	err = f.payloads(func(payload []byte) error {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if !hasEntries(payload[0]) {
			return nil
		}
		return decodeEntries(payload, func(r raw) error {
			if !found {
				_, found = change(&r)
			}
			return nil
		})
	})
	if err != nil || !found {
		return err
	}
	out, err := wholefile.Create(name, 0o600, wholefile.Durable)
	if err != nil {
		return err
	}
	defer out.Discard()
	h := f.header
	h.version, h.salt = FormatVersion, rand.Uint32()
	if _, err := out.Write(h.encode()); err != nil {
		return err
	}
	seq := h.first
	if h.kind == kindSnapshot {
		seq = 1
	}
	var b []byte
	err = f.payloads(func(payload []byte) error {
		if ctx.Err() != nil {
			return errInterrupted
		}
		b = beginFrame(b[:0], payload[0])
		if b, err = changed(b, payload, change); err != nil {
			return err
		}
		endFrame(b, 0, h.salt, seq)
		seq++
		_, err := out.Write(b)
		return err
	})
	if err == nil && h.kind == kindSnapshot {
		b = beginFrame(b[:0], payloadClosed)
		endFrame(b, 0, h.salt, seq)
		_, err = out.Write(b)
	}
	if err != nil {
		return err
	}
	if err := out.Sync(); err != nil { // without the lock, because this may take long
		return err
	}
	info, err := f.Stat()
	if err == nil { // the time of its last write
		err = os.Chtimes(out.Name(), info.ModTime(), info.ModTime())
	}
	if err != nil {
		return err
	}
	a.files.Lock()
	defer a.files.Unlock()
	if _, err := os.Stat(name); err != nil {
		return err
	}
	return out.Commit()
}

// changed appends a payload, without its kind, with the entries as change has them.
func changed(b, payload []byte, change change) ([]byte, error) {
	if !hasEntries(payload[0]) {
		return append(b, payload[1:]...), nil
	}
	copied := 1
	err := decodeEntries(payload, func(r raw) error {
		data, differs := change(&r)
		if !differs {
			return nil
		}
		b = append(b, payload[copied:r.length]...)
		if data == nil {
			b[len(b)-(r.length-r.flags)] |= flagPurged
		} else {
			b = binary.AppendUvarint(b, uint64(len(data)))
			b = append(b, data...)
		}
		copied = r.end
		return nil
	})
	return append(b, payload[copied:]...), err
}
