package main

import (
	"fmt"
	"os"
)

// install calls unpack for the file at path, unless the file is there, complete, and of this version. A record beside
// it says so: the version, the size of the file, and the boot of the machine during which it was written. Nothing is
// synced to disk, so after another boot the file may be empty or a part, whatever its size and the record say: it is
// unpacked again.
func install(path, version, boot string, unpack func(path string) error) error {
	record := path + ".id"
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && boot != "" {
		if have, err := os.ReadFile(record); err == nil && string(have) == installed(version, st.Size(), boot) {
			return nil
		}
	}
	if err := unpack(path); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	// Written last: a crash in between unpacks once more.
	return os.WriteFile(record, []byte(installed(version, st.Size(), boot)), 0o600)
}

// installed is the record of a complete file.
func installed(version string, size int64, boot string) string {
	return fmt.Sprintf("%s %d %s", version, size, boot)
}
