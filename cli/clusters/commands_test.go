package clusters

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
)

func TestRegistriesMustBeDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		dir: "", dir + "," + dir: "", "none": "",
		"/nodir":        `invalid argument "/nodir" for "--registries" flag: must be directories, separated by commas, or none: stat /nodir: no such file or directory`,
		file:            file + " is not a directory",
		dir + "/x,none": "/x: no such file or directory",
	} {
		var s local.ImageSettings
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		imageFlags(f, &s)
		err := f.Parse([]string{"--registries=" + value})
		switch {
		case want == "" && (err != nil || s.Registries != value):
			t.Errorf("%s: %q, %v", value, s.Registries, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || s.Registries != ""):
			t.Errorf("%s: %q, %v, want %s", value, s.Registries, err, want)
		}
	}
}
