package crispec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Files opens files in the volumes of a pod (fileKeyRef, KEP-3721).
type Files interface {
	// Open opens a file for reading, and returns its path on the node for messages. The caller closes it. Symbolic links do not
	// lead out of the volume.
	Open(volume, path string) (file io.ReadCloser, at string, err error)
}

// notParsed returns the error about a file that cannot be read or parsed. It begins with kubelet's words. The file may have
// secrets in it, so why must not have anything from its contents.
func notParsed(name envFile, why error) error {
	return fmt.Errorf("couldn't parse env file %q of volume %q: %w", name.path, name.volume, why)
}

// envFiles are the files that the variables of one container refer to. Each is read once, for all of its keys.
type envFiles struct {
	files Files
	read  map[envFile]*envValues
	left  int // bytes that the values of all files may have together, including the values that are read already
}

func newEnvFiles(files Files) *envFiles {
	return &envFiles{files: files, read: map[envFile]*envValues{}, left: maxTotal}
}

// maxEnvFile is how many bytes of a file are read: comments and values that no variable wants need only time.
const maxEnvFile = 16 * maxTotal

// errTooLarge is the error of an environment whose values have more than maxTotal bytes.
var errTooLarge = fmt.Errorf("the environment is longer than %d bytes", maxTotal)

type envFile struct{ volume, path string }

// envValues is what was found in a file. If err is not nil nothing is known about other keys.
type envValues struct {
	at     string
	values map[string]string
	err    error
}

// value returns the value of a key in a file; found is false if the key is optional and not there. Errors are kubelet's.
func (e *envFiles) value(ref *corev1.FileKeySelector, c *corev1.Container) (value string, found bool, err error) {
	if e.files == nil {
		return "", false, nil // no process would read the variable
	}
	name := envFile{ref.VolumeName, ref.Path}
	file := e.read[name]
	if file == nil {
		file = e.open(name, c)
		e.read[name] = file
	}
	value, known := file.values[ref.Key]
	switch {
	case !known && file.err != nil:
		return "", false, file.err
	case value == "":
		return "", false, optional(ref.Optional, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, file.at))
	}
	return value, true, nil
}

// open reads a file with all keys of it that the container wants.
func (e *envFiles) open(name envFile, c *corev1.Container) *envValues {
	r, at, err := e.files.Open(name.volume, name.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &envValues{err: notParsed(name, errors.New("the file does not exist"))}
	case err != nil:
		return &envValues{err: err}
	}
	defer r.Close()
	keys := map[string]bool{}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil && (envFile{from.FileKeyRef.VolumeName, from.FileKeyRef.Path}) == name {
			keys[from.FileKeyRef.Key] = true
		}
	}
	v := &envValues{at: at}
	v.values, err = parseEnvFile(r, keys, &e.left)
	switch {
	case errors.Is(err, errTooLarge):
		v.values, v.err = nil, err
	case err != nil:
		v.err = notParsed(name, err)
	}
	return v
}

// parseEnvFile returns the first values of keys in a file of variables, as kubelet reads them: lines NAME='VALUE', where the value may
// have several lines and is taken as it is, comments (#) and blank lines. NAME= 'VALUE' is the empty value. It stops when it has all
// keys; what it returns with an error was found before the error. Lines are at most 64 KiB long. The values take their bytes from
// left; if it has too few the error is errTooLarge.
func parseEnvFile(r io.Reader, keys map[string]bool, left *int) (map[string]string, error) {
	values := map[string]string{}
	limited := &io.LimitedReader{R: r, N: maxEnvFile}
	lines := bufio.NewScanner(limited)
	for len(values) < len(keys) && lines.Scan() {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.TrimRight(name, " \t") != name {
			return values, errors.New("a line does not begin with a name and =")
		}
		_, again := values[name]
		if !keys[name] || again {
			if _, err := envValue(lines, rest, nil); err != nil {
				return values, err
			}
			continue
		}
		value, err := envValue(lines, rest, left)
		if err != nil {
			return values, err
		}
		values[name] = value
	}
	if limited.N <= 0 && len(values) < len(keys) {
		return values, fmt.Errorf("the file is longer than %d bytes", maxEnvFile)
	}
	return values, lines.Err()
}

// envValue returns the value that begins with rest, and goes on in the next lines until the closing quote. Its bytes are taken from
// left, and the error is errTooLarge if it has too few. If left is nil the value is only read past.
func envValue(lines *bufio.Scanner, rest string, left *int) (string, error) {
	if strings.TrimLeft(rest, " \t") != rest {
		return "", nil
	}
	rest, ok := strings.CutPrefix(rest, "'")
	if !ok {
		return "", errors.New("a value is not in single quotes")
	}
	var value strings.Builder
	for {
		part, after, closed := strings.Cut(rest, "'")
		if left != nil {
			if *left -= len(part) + 1; *left < 0 {
				return "", errTooLarge
			}
			value.WriteString(part)
		}
		if closed {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", errors.New("there is more after the closing quote")
			}
			return value.String(), nil
		}
		if left != nil {
			value.WriteByte('\n')
		}
		if !lines.Scan() {
			return "", errors.New("a quote is not closed")
		}
		rest = lines.Text()
	}
}
