package snapshots

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

// A Description describes the contents of a snapshot.
type Description struct {
	snapshot.Info
	snapshot.Summary
	Sealed bool `json:"sealed"` // the file is encrypted as a whole

	settings local.Settings
}

// ClusterSettings returns the settings that the cluster of the snapshot had.
func (d Description) ClusterSettings() local.Settings { return d.settings }

// Open reports whether everyone who can read the file can read the Secrets in it.
func (d Description) Open() bool { return !d.Sealed && d.Secrets == snapshot.Plain }

// describe returns the description from the beginning of a snapshot. The settings are checked like those of a command
// line.
func describe(info snapshot.Info, isSealed bool) (Description, error) {
	d := Description{Info: info, Sealed: isSealed}
	if err := checkTexts(info); err != nil {
		return d, err
	}
	if len(info.Settings) == 0 {
		return d, &snapshot.ForeignError{Reason: "the snapshot has no settings of a cluster"}
	}
	if err := json.Unmarshal(info.Settings, &d.settings); err != nil {
		return d, &snapshot.ForeignError{Reason: "the settings in the snapshot cannot be read: " + err.Error()}
	}
	if err := d.settings.Check(); err != nil {
		return d, &snapshot.ForeignError{Reason: "the settings in the snapshot are not valid: " + err.Error()}
	}
	if !d.settings.Services.IsValid() || !d.settings.Pods.IsValid() {
		return d, &snapshot.ForeignError{Reason: "the settings in the snapshot have no networks"}
	}
	return d, nil
}

// checkTexts returns an error for texts that would control a terminal.
func checkTexts(info snapshot.Info) error {
	for _, text := range []string{info.ClusterID, info.Cluster, info.Version, info.API} {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return &snapshot.ForeignError{Reason: fmt.Sprintf("the description of the snapshot has %q, which is not printable", text)}
		}
	}
	return nil
}

// Inspect reads all of a snapshot and returns its description, or the fault.
func Inspect(in io.Reader, keys Keys) (Description, error) {
	r, isSealed, err := keys.reader(in)
	if err != nil {
		return Description{Sealed: isSealed}, err
	}
	d, err := describe(r.Info, isSealed)
	if err != nil {
		return d, err
	}
	d.Summary, err = r.Read(snapshot.Sink{})
	return d, err
}

// A Filing says how a snapshot is written to a file.
type Filing struct {
	Keys Keys // encrypt the file; without them the Secrets in it have to be encrypted

	// PKI is the directory with the keys of the cluster, which the file gets, too; "" means that it gets none. It
	// needs Keys.
	PKI string
}

// WriteFile writes a snapshot that arrives as a stream to a file, and checks it meanwhile: without an error the file
// is a complete snapshot.
func WriteFile(out io.Writer, in io.Reader, o Filing) (d Description, err error) {
	switch {
	case o.PKI != "" && !o.Keys.Any():
		return d, errors.New("--with-keys: needs --passphrase-file or --key-file, because the file gives everything to everyone who can read it")
	case o.Keys.Any():
		sealing, err := o.Keys.seal(out)
		if err != nil {
			return d, err
		}
		defer func() { err = errors.Join(err, sealing.Close()) }()
		out = sealing
	}
	begin := &bytes.Buffer{} // of the snapshot, until it is known to be one that may be written
	copied := &copied{in: in, out: begin}
	r, err := snapshot.NewReader(copied)
	if err != nil {
		return d, err
	}
	if r.Info.Secrets == snapshot.Plain && !o.Keys.Any() {
		return d, errors.New("the Secrets in the snapshot are not encrypted, and neither would the file be")
	}
	if d, err = describe(r.Info, o.Keys.Any()); err != nil {
		return d, err
	}
	if o.PKI == "" { // the file has the bytes of the stream
		buffered := bufio.NewWriterSize(out, 256<<10)
		copied.out = buffered
		if _, err := buffered.Write(begin.Bytes()); err != nil {
			return d, err
		}
		if d.Summary, err = r.Read(snapshot.Sink{}); err == nil || copied.failed != nil {
			err = buffered.Flush() // returns the error of an earlier write
		}
		return d, err
	}
	copied.out = io.Discard
	r.Info.Keys = true
	d.Info = r.Info
	w, err := snapshot.NewWriter(out, r.Info)
	if err == nil {
		err = addKeys(w, o.PKI)
	}
	if err != nil {
		return d, err
	}
	sum, err := r.Read(snapshot.Sink{Record: func(e store.Entry) error { return w.Add(e) }, File: w.AddFile})
	if err != nil {
		return d, err
	}
	d.Summary, err = w.Close(sum.Unreadable)
	return d, err
}

// A copied reader writes the bytes that it reads to out.
type copied struct {
	in     io.Reader
	out    io.Writer
	failed error // of a write
}

func (c *copied) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	if n > 0 {
		if _, c.failed = c.out.Write(b[:n]); c.failed != nil {
			return n, c.failed
		}
	}
	return n, err
}

// keyFile reports whether a name is that of a file in the directory of the keys of a cluster.
func keyFile(name string) bool {
	dir, base := path.Split(name)
	return dir == "pki/" && base != "" && !strings.HasPrefix(base, ".") && !strings.ContainsAny(base, `/\`) && len(base) < 256
}

// addKeys adds the files with the keys of a cluster.
func addKeys(w *snapshot.Writer, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the keys of the cluster: %w", err)
	}
	if !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() == "ca.key" }) {
		return fmt.Errorf("reading the keys of the cluster: %s has no ca.key", dir)
	}
	for _, f := range files {
		if name := "pki/" + f.Name(); f.Type().IsRegular() && keyFile(name) {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err == nil {
				err = w.AddFile(name, data)
			}
			if err != nil {
				return fmt.Errorf("reading the keys of the cluster: %w", err)
			}
		}
	}
	return nil
}
