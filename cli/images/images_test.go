package images

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestImagesArePrintedAsAsked(t *testing.T) {
	images := []image{
		{Names: []string{"web:v1", "app:v2"}, Digests: []string{"web@sha256:1"}, ID: "sha256:" + strings.Repeat("a", 64), Bytes: 6_400_000},
		{Names: []string{"sha256:" + strings.Repeat("b", 64)}, ID: "sha256:" + strings.Repeat("b", 64)},
	}
	printed := func(format string) string {
		t.Helper()
		var out strings.Builder
		if err := printImages(&out, format, images); err != nil {
			t.Errorf("-o %s: %v", format, err)
		}
		return out.String()
	}
	if got, want := printed("name"), "app:v2\nsha256:"+strings.Repeat("b", 64)+"\nweb:v1\n"; got != want {
		t.Errorf("names:\n%swant:\n%s", got, want)
	}
	if lines := strings.Split(printed(""), "\n"); len(lines) != 5 || strings.Join(strings.Fields(lines[1]), " ") != "app:v2 aaaaaaaaaaaa 6.4 MB" {
		t.Errorf("table %q", lines)
	}
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) },
	} {
		var got []map[string]any
		if err := read([]byte(printed(format)), &got); err != nil || len(got) != 2 || got[0]["sizeBytes"] != 6.4e6 || got[1]["digests"] != nil {
			t.Errorf("-o %s: %v, %v", format, got, err)
		}
	}
	var out strings.Builder
	if err := printImages(&out, "jsonpath={.id}", images); err == nil || out.String() != "" {
		t.Errorf("-o jsonpath: %v, %q", err, &out)
	}
}

func TestSizeHasTheUnitThatFits(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 34_567: "34.6 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 6_400_000: "6.4 MB", 12_345_678_901: "12.3 GB", 1e17: "100000.0 TB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestSaveKeepsWholeFiles saves an image of which the runtime sends a part, and then all.
func TestSaveKeepsWholeFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("connection lost")
	for _, tt := range []struct {
		end  error
		want string
	}{{lost, "before"}, {io.EOF, "image"}} {
		parts := []string{"im", "age"}
		err := saveTo(file, func() ([]byte, error) {
			if len(parts) == 0 {
				return nil, tt.end
			}
			part := parts[0]
			parts = parts[1:]
			return []byte(part), nil
		})
		if (err == nil) != errors.Is(tt.end, io.EOF) {
			t.Errorf("the stream ends with %v: error %v", tt.end, err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != tt.want {
			t.Errorf("the stream ends with %v: the file has %q, %v, want %q", tt.end, text, err, tt.want)
		}
	}
}
