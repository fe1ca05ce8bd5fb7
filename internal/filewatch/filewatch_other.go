//go:build !linux || portable

package filewatch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// follow is [Follow] with the mechanism of the system that fsnotify knows.
func follow(ctx context.Context, files []string, changed func()) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", strings.Join(files, ", "), err)
	}
	defer func() { _ = events.Close() }()
	names := map[string][]string{} // by directory
	for _, file := range files {
		dir, name := filepath.Split(file)
		dir = filepath.Clean(dir)
		if err := events.Add(dir); err != nil {
			return fmt.Errorf("watching %s: %w", dir, err)
		}
		names[dir] = append(names[dir], name)
	}
	changed() // what happened before the watch
	for {
		select {
		case e := <-events.Events:
			dir, name := filepath.Split(e.Name)
			of := names[filepath.Clean(dir)]
			if e.Op != fsnotify.Chmod && (slices.Contains(of, name) || slices.Contains(of, "") || strings.HasPrefix(name, "..")) {
				changed()
			}
		case <-events.Errors: // events were lost
			changed()
		case <-ctx.Done():
			return nil
		}
	}
}
