package crispec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEnvFileIsReadAsByKubelet has a key for each file; a file that can't be parsed has the value "!".
func TestEnvFileIsReadAsByKubelet(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"A='1'", "1"},
		{"A='1'\n", "1"},
		{" \t A='1'", "1"},
		{"\n# A='0'\n   # x\n \t\nA='1'", "1"},
		{"B='0'\nA='1'\nA='2'", "1"},
		{"A='1' # comment", "1"},
		{"A='1'\t#comment", "1"},
		{"A='1' 2", "!"},
		{"A='1''2'", "!"},
		{"A=1", "!"},
		{"A=\"1\"", "!"},
		{"A=", "!"},
		{"A= '1'", ""},
		{"A=\t'1'\nA='2'", ""},
		{"A ='1'", "!"},
		{"='1'", "!"},
		{"A", "!"},
		{"export A='1'", ""}, // another name
		{"A='1\n2\n\n3'", "1\n2\n\n3"},
		{"A='1\r\n2'\r\n", "1\n2"},
		{"A='$B \\n \\' # a backslash escapes nothing", "$B \\n \\"},
		{"A='1\n# no comment'", "1\n# no comment"},
		{"A='1", "!"},
		{"B='1\nA='2'", "!"},
		{"B='1\nA=2'", ""},
		{"A='1'\nnonsense", "1"},
		{"nonsense\nA='1'", "!"},
		{"", ""},
		{"A=''", ""},
		{"A='a=b'", "a=b"},
		{"A='" + strings.Repeat("x", 65<<10) + "'", "!"},
		{"A='" + strings.Repeat(strings.Repeat("x", 1<<10)+"\n", maxTotal>>10) + "'", "!"},
	} {
		left := maxTotal
		values, err := parseEnvFile(strings.NewReader(tt.file), map[string]bool{"A": true}, &left)
		got, known := values["A"]
		if !known && err != nil {
			got = "!"
		}
		if got != tt.want {
			t.Errorf("%.60q: %.60q, want %q", tt.file, got, tt.want)
		}
	}
}

// someFiles are the files of volumes, by volume and path.
type someFiles struct {
	texts  map[string]string
	opened int
}

func (f *someFiles) Open(volume, path string) (io.ReadCloser, string, error) {
	f.opened++
	text, ok := f.texts[volume+"/"+path]
	if !ok {
		return nil, "", fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(text)), "/pods/" + volume + "/" + path, nil
}

func TestVariablesFromFiles(t *testing.T) {
	from := func(name, key, path string, may bool) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: path, Key: key, Optional: &may}}}
	}
	texts := map[string]string{"v/a": "A='1'\nB='2'\nE=''\nbroken", "v/good": "A='x'"}
	for _, tt := range []struct {
		name string
		env  []corev1.EnvVar
		want string
		err  error
	}{
		{"two keys and an expansion", []corev1.EnvVar{from("X", "B", "a", false), from("Y", "A", "a", false), {Name: "Z", Value: "$(X)$(Y)"}}, "X=2 Y=1 Z=21", nil},
		{"beyond a broken line", []corev1.EnvVar{from("X", "A", "a", true), from("Y", "C", "a", true)}, "", errors.New(`couldn't parse env file "a" of volume "v": a line does not begin with a name and =`)},
		{"no file, even if it is optional", []corev1.EnvVar{from("X", "A", "none", true)}, "", errors.New(`couldn't parse env file "none" of volume "v": the file does not exist`)},
		{"no key", []corev1.EnvVar{from("X", "B", "good", false)}, "", errors.New(`environment variable key "B" not found in file "/pods/v/good"`)},
		{"no value", []corev1.EnvVar{from("X", "E", "a", false)}, "", errors.New(`environment variable key "E" not found in file "/pods/v/a"`)},
		{"no key, optional", []corev1.EnvVar{from("X", "B", "good", true), from("Y", "A", "good", false)}, "Y=x", nil},
		{"no value, optional", []corev1.EnvVar{from("X", "E", "a", true)}, "", nil},
	} {
		files := &someFiles{texts: texts}
		list, _, err := Facts{Pod: &corev1.Pod{}, Files: files}.Environment(&corev1.Container{Env: tt.env})
		var got []string
		for _, kv := range list {
			got = append(got, kv.GetKey()+"="+string(kv.GetValue()))
		}
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.err == nil) || err != nil && err.Error() != tt.err.Error() {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
		if files.opened != 1 {
			t.Errorf("%s: a file was read %d times", tt.name, files.opened)
		}
	}
}

// TestEnvFilesHaveOneBudget has a file with values that are each as long as an environment may be.
func TestEnvFilesHaveOneBudget(t *testing.T) {
	const n = 50
	long := strings.Repeat(strings.Repeat("x", 1<<10-1)+"\n", maxTotal>>10-1)
	var file strings.Builder
	keys := map[string]bool{}
	for i := range n {
		fmt.Fprintf(&file, "K%d='%s'\n", i, long)
		keys[fmt.Sprintf("K%d", i)] = true
	}
	text := strings.NewReader(file.String())
	left := maxTotal
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	values, err := parseEnvFile(text, keys, &left)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errTooLarge) || len(values) != 1 {
		t.Errorf("%d values, %v; want one and errTooLarge", len(values), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16*maxTotal {
		t.Errorf("%d bytes were allocated for %d values, want those of one value", grown, n)
	}
	left = maxTotal
	if _, err := parseEnvFile(strings.NewReader(file.String()), map[string]bool{"L": true}, &left); err == nil || errors.Is(err, errTooLarge) || left != maxTotal {
		t.Errorf("a key that is not in the first %d bytes: %v, %d bytes left", maxEnvFile, err, left)
	}
}
