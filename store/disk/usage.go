package disk

import (
	"os"
	"strings"
)

// Usage is a store's share of its file system.
type Usage struct {
	Bytes    int64 // of all its files
	Segments int   // files of the log
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
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // it was deleted meanwhile
		}
		u.Bytes += info.Size()
		if strings.HasSuffix(f.Name(), ".log") {
			u.Segments++
		}
	}
	u.Total, u.Free, err = freeSpace(dir)
	return u, err
}
