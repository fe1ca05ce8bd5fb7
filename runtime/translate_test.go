package runtime

import (
	"slices"
	"strings"
	"testing"
)

func TestPathsOfDriversAreTranslated(t *testing.T) {
	const theirs, ours = "/var/lib/kubelet/plugins/a/file", "/data/plugins/a/file"
	for name, tt := range map[string]struct {
		path, there, want string // there has the paths that exist
	}{
		"of the pod of a driver":          {theirs, ours, ours},
		"of a program on the machine":     {theirs, theirs, theirs},
		"of both":                         {theirs, theirs + " " + ours, ours},
		"of none":                         {theirs, "", ours},
		"with dots":                       {"/var/lib/kubelet/../kubelet//plugins/a/file", ours, ours},
		"that leads out by dots":          {"/var/lib/kubelet/../secret", "", "/var/lib/kubelet/../secret"},
		"elsewhere":                       {"/dev/null", "/data/null", "/dev/null"},
		"of another with a longer name":   {"/var/lib/kubelet2/a", "/data/a", "/var/lib/kubelet2/a"},
		"that is the directory of a node": {"/var/lib/kubelet", "/data", "/var/lib/kubelet"},
	} {
		exists := func(path string) bool { return slices.Contains(strings.Fields(tt.there), path) }
		if got := translated(tt.path, "/data", exists); got != tt.want {
			t.Errorf("a path %s: %s becomes %s, want %s", name, tt.path, got, tt.want)
		}
	}
}
