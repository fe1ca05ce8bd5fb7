package local

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An origin is where a cluster was started last. A copy of the data directory has the one of the original.
type origin struct {
	// Machine is derived from the ID of the machine (machine-id(5)), which is no secret then; empty if it has none.
	Machine string `json:"machine,omitempty"`
	DataDir string `json:"dataDir"`
}

func (p Profile) originFile() string { return filepath.Join(p.DataDir, "origin.json") }

// here returns the origin of a cluster that is started now.
func (p Profile) here() origin {
	dir, err := filepath.EvalSymlinks(p.DataDir)
	if err != nil {
		dir = p.DataDir
	}
	return origin{Machine: machineOf("/etc/machine-id"), DataDir: dir}
}

// machineOf returns what identifies the machine with that file.
func machineOf(file string) string {
	id, err := os.ReadFile(file)
	if text := strings.TrimSpace(string(id)); err == nil && text != "" && text != "uninitialized" {
		sum := hmac.New(sha256.New, []byte(text))
		sum.Write([]byte("sampan data directory")) // a hash.Hash returns no error
		return hex.EncodeToString(sum.Sum(nil)[:16])
	}
	return ""
}

// KeepOrigin records that the cluster is started here, for [Profile.CheckCopy].
func (p Profile) KeepOrigin() error {
	var last origin
	if read(p.originFile(), &last) == nil && last == p.here() {
		return nil
	}
	data, err := json.Marshal(p.here())
	if err != nil {
		return err
	}
	return replace(p.originFile(), data)
}

// A CopyError says that a data directory is a copy, or may be one.
type CopyError struct {
	DataDir  string
	Original string // the directory of the original; empty if the last start was on another machine
	Last     string // where the last start was, on another machine
}

func (e *CopyError) Error() string {
	const keys = "Both have the same certificate authority and the same keys: administrators, nodes and tokens of one are those of the other."
	if e.Original != "" {
		return fmt.Sprintf("%s is a copy of the cluster in %s. %s To move a cluster, stop it and remove the original; to start another cluster with the same objects, start the original and use `sampan fork`; to start the copy all the same, pass --accept-copy", e.DataDir, e.Original, keys)
	}
	return fmt.Sprintf("the cluster in %s was last started on another machine (in %s there). If its data was copied and the original is still used: %s If it was moved or restored and there is no other one, pass --accept-copy once", e.DataDir, e.Last, keys)
}

// CheckCopy returns a [*CopyError] if the data directory is a copy whose original is still there: a directory with the same
// certificate authority, where the cluster was started last or that another name on this machine has. A directory that was
// moved on its machine is none. On another machine the original cannot be looked for, so that is an error as well.
func (p Profile) CheckCopy() error {
	authority := authorityIn(p.DataDir)
	if authority == nil {
		return nil // it was never started
	}
	var last origin
	err := read(p.originFile(), &last)
	if _, ok := errors.AsType[*damageError](err); err != nil && !ok {
		return fmt.Errorf("reading where the cluster was started last: %w", err)
	}
	now := p.here()
	if last.Machine != "" && now.Machine != "" && last.Machine != now.Machine {
		return &CopyError{DataDir: p.DataDir, Last: last.DataDir}
	}
	if last.DataDir == now.DataDir {
		return nil // the original, or a copy that was accepted
	}
	others := []string{last.DataDir}
	clusters, _ := p.Clusters() // one that cannot be read is not known to be the original
	for _, c := range clusters {
		others = append(others, c.DataDir)
	}
	for _, dir := range others {
		if dir != "" && !sameFile(dir, p.DataDir) && hasStarted(dir) && bytes.Equal(authorityIn(dir), authority) {
			return &CopyError{DataDir: p.DataDir, Original: dir}
		}
	}
	return nil
}

// hasStarted reports whether the cluster in a data directory was started there or at another place: one that was
// restored and never started has no clients.
func hasStarted(dir string) bool {
	_, err := os.Stat(Profile{DataDir: dir}.originFile())
	return err == nil
}

// authorityIn returns the certificate authority of the cluster in a data directory, or nil.
func authorityIn(dir string) []byte {
	data, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return data
}

// sameFile reports whether two paths are those of one file.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(first, second)
}
