//go:build !portable

package filewatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// follow is [Follow] with inotify.
func follow(ctx context.Context, files []string, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify") // nonblocking: the Go runtime polls it
	defer func() { _ = events.Close() }()
	const kinds = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE
	names := map[int32][]string{} // by watch, which a directory has one of
	for _, file := range files {
		dir, name := filepath.Split(file)
		watch, err := unix.InotifyAddWatch(fd, filepath.Clean(dir), kinds)
		if err != nil {
			return fmt.Errorf("watching %s: %w", filepath.Clean(dir), err)
		}
		names[int32(watch)] = append(names[int32(watch)], name)
	}
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	changed()                  // what happened before the watch
	buf := make([]byte, 4<<10) // lives on the stack as long as the watch; an event has at most 272 bytes
	for {
		n, err := events.Read(buf)
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("watching %s: %w", strings.Join(files, ", "), err)
		}
		if concerns(buf[:n], names) {
			changed()
		}
	}
}

// concerns reports whether one of the events is about one of the files, or about the links of a mounted ConfigMap, which begin with
// two dots.
func concerns(events []byte, names map[int32][]string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(events[:4]))
		size := int(binary.NativeEndian.Uint32(events[12:16]))
		end := min(unix.SizeofInotifyEvent+size, len(events))
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		if slices.Contains(names[watch], name) || slices.Contains(names[watch], "") || strings.HasPrefix(name, "..") || size == 0 { // without a name: events were lost
			return true
		}
		events = events[end:]
	}
	return false
}
