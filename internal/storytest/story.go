package storytest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the answers of the stories again")

// Play plays each story in dir, the files whose names end in ".txt", as a subtest of
// the file's name. For each it calls begin once, and what that returns, which may be
// bound to state of its own, with each line of the story in turn, empty ones too and
// without the newline; what is returned then are the lines of the answer.
func Play(t *testing.T, dir string, begin func(t *testing.T) (do func(line string) []string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			switch now := play(string(old), begin(t)); {
			case now == string(old):
			case *update:
				if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s went differently; now:\n%s", file, now)
			}
		})
	}
}

func play(story string, do func(line string) []string) string {
	var out strings.Builder
	for line := range strings.Lines(story) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		out.WriteString(line + "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, said := range do(line) {
			out.WriteString("> " + said + "\n")
		}
	}
	return out.String()
}
