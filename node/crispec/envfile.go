package crispec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Files opens files in the volumes of a pod (fileKeyRef, KEP-3721).
type Files interface {
	// Open opens a file for reading, and returns its path on the node for messages. The caller closes it. Symbolic links do not
	// lead out of the volume.
	Open(volume, path string) (file io.ReadCloser, at string, err error)
}

// errNotParsed is the whole error, in kubelet's words: the file may have secrets in it.
var errNotParsed = errors.New("couldn't parse env file") //nolint:gochecknoglobals // a constant

// envFiles are the files that the variables of one container refer to. Each is read once, for all of its keys.
type envFiles struct {
	files Files
	read  map[envFile]*envValues
}

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
	if err != nil {
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
	if v.values, err = parseEnvFile(r, keys); err != nil {
		v.err = errNotParsed
	}
	return v
}

// parseEnvFile returns the first values of keys in a file of variables, as kubelet reads them: lines NAME='VALUE', where the value may
// have several lines and is taken as it is, comments (#) and blank lines. NAME= 'VALUE' is the empty value. It stops when it has all
// keys; what it returns with an error was found before the error. Lines are at most 64 KiB long.
func parseEnvFile(r io.Reader, keys map[string]bool) (map[string]string, error) {
	values := map[string]string{}
	lines := bufio.NewScanner(r)
	for len(values) < len(keys) && lines.Scan() {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.TrimRight(name, " \t") != name {
			return values, errors.New("a line does not begin with a name and =")
		}
		value, err := envValue(lines, rest)
		if err != nil {
			return values, err
		}
		if _, again := values[name]; keys[name] && !again {
			values[name] = value
		}
	}
	return values, lines.Err()
}

// envValue returns the value that begins with rest, and goes on in the next lines until the closing quote.
func envValue(lines *bufio.Scanner, rest string) (string, error) {
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
		value.WriteString(part)
		if closed {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", errors.New("there is more after the closing quote")
			}
			return value.String(), nil
		}
		value.WriteByte('\n')
		if value.Len() > maxTotal {
			return "", fmt.Errorf("a value is longer than %d bytes", maxTotal)
		}
		if !lines.Scan() {
			return "", errors.New("a quote is not closed")
		}
		rest = lines.Text()
	}
}
