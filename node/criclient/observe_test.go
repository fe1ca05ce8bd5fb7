package criclient

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

func TestTerminationMessageFromLog(t *testing.T) {
	entry := func(tag, text string) string {
		return "2030-01-01T00:00:00.000000001Z stdout " + tag + " " + text + "\n"
	}
	many := ""
	for i := range 100 {
		many += entry("F", fmt.Sprint(i))
	}
	long := strings.Repeat("long line with blanks ", 200)
	tests := []struct{ name, log, want string }{
		{"a line", entry("F", "DONE"), "DONE\n"},
		{"no newline at the end", entry("P", "DONE"), "DONE"},
		{"a line in parts", entry("P", "one ") + entry("F", "two"), "one two\n"},
		{"more lines than fit", many, func() string {
			want := ""
			for i := 20; i < 100; i++ {
				want += fmt.Sprintln(i)
			}
			return want
		}()},
		{"more bytes than fit", entry("F", "before") + entry("F", long), (long + "\n")[len(long)+1-2048:]},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(path, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			got := terminationMessage(t.Context(), &cri.ContainerStatus{ExitCode: 1, LogPath: path, Annotations: map[string]string{
				crispec.TerminationUse: string(corev1.TerminationMessageFallbackToLogsOnError),
			}})
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
