package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// placeFile is the contents of the file of a [Profile.Record].
type placeFile struct {
	DataDir string `json:"dataDir"`
}

// record returns the file that records the data directory of the cluster. It is beside the
// default data directories of all names: a name has no dots.
func (p Profile) record() string { return p.Default + ".json" }

// Record records the data directory, so that the name alone finds the cluster when it is stopped: see [Profile.Located]. The default
// directory is recorded as well: without its data there was a cluster, which is not one that has never been started.
// Other names do not find it any more: it has the cluster that was started last.
func (p Profile) Record() error {
	if p.Default == "" {
		return nil
	}
	if err := p.forgetOthers(); err != nil {
		return err
	}
	if now, err := p.Recorded(); err == nil && now == p.DataDir {
		return nil
	}
	data, err := json.Marshal(placeFile{DataDir: p.DataDir})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p.record()), 0o700)
	}
	if err == nil {
		err = replace(p.record(), data)
	}
	if err != nil && p.DataDir == p.Default {
		return p.forgetRecord() // it is found all the same
	}
	if err != nil {
		return fmt.Errorf("recording the data directory of the cluster: %w", err)
	}
	return nil
}

// Recorded returns the data directory of the last [Profile.Record], or "" if there was none.
func (p Profile) Recorded() (string, error) {
	var place placeFile
	if p.Default == "" {
		return "", nil
	}
	err := read(p.record(), &place)
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("reading the data directory of cluster %s: %w", p.Name, err)
	}
	if err != nil {
		return "", fmt.Errorf("reading the data directory of cluster %s: %w; remove that file, and pass the directory with --data-dir", p.Name, err)
	}
	return place.DataDir, nil
}

// Located returns the profile with the recorded data directory, or the default one. It is an error if that could be the wrong one:
// if the default directory has the data of a cluster as well.
func (p Profile) Located() (Profile, error) {
	recorded, err := p.Recorded()
	if err != nil || recorded == "" {
		return p, err
	}
	if recorded == p.Default {
		p.DataDir = recorded
		return p, nil
	}
	inDefault := p.holdsIn(p.Default)
	p.DataDir = recorded
	switch {
	case !inDefault:
		return p, nil
	case p.holdsIn(recorded):
		return p, fmt.Errorf("there are two clusters %s: one with its data in %s, which was started last, and one in %s; pass the directory with --data-dir", p.Name, recorded, p.Default)
	default:
		return p, fmt.Errorf("cluster %s was started last with its data in %s, which has none now, and there is a cluster of that name in %s; pass the directory with --data-dir", p.Name, recorded, p.Default)
	}
}

// holdsIn reports whether a directory has the data of a cluster.
func (p Profile) holdsIn(dir string) bool {
	p.DataDir = dir
	holds, err := p.Holds()
	return holds && err == nil
}

// Elsewhere returns the directory with the data of a cluster of that name that the name alone finds now and does not any more after
// [Profile.Record], or "" if there is none.
func (p Profile) Elsewhere() (string, error) {
	if p.Default == "" {
		return "", nil
	}
	recorded, err := p.Recorded()
	if errors.Is(err, fs.ErrPermission) {
		return "", nil // it is not a cluster of this user
	}
	if err != nil {
		return "", err
	}
	for _, dir := range []string{recorded, p.Default} {
		if dir != "" && dir != p.DataDir && p.holdsIn(dir) {
			return dir, nil
		}
	}
	return "", nil
}

// forgetOthers removes what [Profile.Record] has recorded of the data directory for other names.
func (p Profile) forgetOthers() error {
	records, err := filepath.Glob(filepath.Join(filepath.Dir(p.record()), "*.json"))
	if err != nil {
		return err
	}
	for _, file := range records {
		var place placeFile
		if file == p.record() || read(file, &place) != nil || place.DataDir != p.DataDir {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record of another cluster in the same data directory: %w", err)
		}
	}
	return nil
}

// forgetRecord removes what [Profile.Record] has recorded.
func (p Profile) forgetRecord() error {
	if err := os.Remove(p.record()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the record of the data directory: %w", err)
	}
	return nil
}
