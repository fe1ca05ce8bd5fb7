package managed_test

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver/managed"
)

func TestName(t *testing.T) {
	for _, tt := range []struct{ manager, agent, want string }{
		{"alice", "kubectl/v1.37", "alice"},
		{"", "kubectl/v1.37 (linux/amd64)", "kubectl"},
		{"", "deployment-controller", "deployment-controller"},
		{"", "", ""},
		{"", "/x", ""},
		{"", "a\x00b\tc", "abc"},
		{"", strings.Repeat("ä", 100), strings.Repeat("ä", 64)},
		{"", "x" + strings.Repeat("ä", 100), "x" + strings.Repeat("ä", 63)},
	} {
		if got := managed.Name(tt.manager, tt.agent); got != tt.want {
			t.Errorf("Name(%q, %q) = %q, want %q", tt.manager, tt.agent, got, tt.want)
		}
	}
}
