package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Usage is a store's share of its file system.
type Usage struct {
	Bytes    int64 // of all its files, with those of the history
	Segments int   // files of the log, without those of the history
	Free     int64 // of the file system, for this process
	Total    int64 // of the file system
}

// UsageOf returns the usage of the store in a directory, which may be open.
func UsageOf(dir string) (Usage, error) {
	var u Usage
	files, err := os.ReadDir(dir)
	if err != nil {
		return u, err
	}
	old, _ := os.ReadDir(filepath.Join(dir, historyDir)) // there may be none
	for n, f := range slices.Concat(files, old) {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // it was deleted meanwhile
		}
		u.Bytes += info.Size()
		if n < len(files) && strings.HasSuffix(f.Name(), ".log") {
			u.Segments++
		}
	}
	u.Total, u.Free, err = freeSpace(dir)
	return u, err
}
