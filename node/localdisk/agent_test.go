package localdisk_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

const volume = "pvc-01234567-89ab-cdef-0123-456789abcdef"

func request(t *testing.T, agent http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	agent.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestAgentRepeatsRequests(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data", "volumes")
	agent, path := newAgent(root), filepath.Join(root, volume)
	for range 2 {
		w := request(t, agent, http.MethodPut, "/sampan/volumes/"+volume)
		var answer struct{ Path string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != http.StatusOK || err != nil || answer.Path != path {
			t.Errorf("PUT: %d %s", w.Code, w.Body)
		}
		if info, err := os.Lstat(path); err != nil || !info.IsDir() || info.Mode().Perm() != 0o777 {
			t.Errorf("the directory: %v %v", info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if w := request(t, agent, http.MethodDelete, "/sampan/volumes/"+volume+"?path="+url.QueryEscape(path)); w.Code != http.StatusOK {
			t.Errorf("DELETE: %d %s", w.Code, w.Body)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the directory is there: %v", err)
		}
	}
}

func TestAgentRefusesOtherNamesAndPaths(t *testing.T) {
	data := t.TempDir()
	root := filepath.Join(data, "volumes")
	for _, dir := range []string{volume, "x", "pvc-x"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	agent := newAgent(root)
	for _, tt := range []struct {
		method, path string
		code         int
	}{
		{http.MethodPut, "/sampan/volumes/x", 400},
		{http.MethodPut, "/sampan/volumes/pvc-x", 400},
		{http.MethodPut, "/sampan/volumes/pvc-", 400},
		{http.MethodPut, "/sampan/volumes/pvc-..%2f..%2f..%2f..%2f..%2f..%2f..%2f..%2f..%2f", 400},
		{http.MethodPut, "/sampan/volumes/" + volume + "%2f..%2fx", 400},
		{http.MethodDelete, "/sampan/volumes/%2e%2e?path=" + url.QueryEscape(data), 400},
		{http.MethodDelete, "/sampan/volumes/pvc-x?path=" + url.QueryEscape(root+"/pvc-x"), 400},
		{http.MethodDelete, "/sampan/volumes/" + volume, 409},
		{http.MethodDelete, "/sampan/volumes/" + volume + "?path=/etc", 409},
		{http.MethodGet, "/sampan/volumes/" + volume, 405},
		{http.MethodPost, "/sampan/volumes/" + volume, 405},
	} {
		if w := request(t, agent, tt.method, tt.path); w.Code != tt.code {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, w.Code, w.Body, tt.code)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 3 {
		t.Errorf("the directories are %v, %v", entries, err)
	}
}

// TestLinksLeadNowhere: neither one in place of a volume nor one in it.
func TestLinksLeadNowhere(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	agent, path, file := newAgent(root), filepath.Join(root, volume), filepath.Join(outside, "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		t.Helper()
		if w := request(t, agent, http.MethodDelete, "/sampan/volumes/"+volume+"?path="+url.QueryEscape(path)); w.Code != http.StatusOK {
			t.Errorf("DELETE: %d %s", w.Code, w.Body)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the volume is there: %v", err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("a file outside: %v", err)
		}
	}
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	if w := request(t, agent, http.MethodPut, "/sampan/volumes/"+volume); w.Code != http.StatusInternalServerError {
		t.Errorf("PUT: %d %s", w.Code, w.Body)
	}
	if after, err := os.Stat(outside); err != nil || after.Mode() != before.Mode() {
		t.Errorf("the directory outside: %v %v", after, err)
	}
	remove()
	if w := request(t, agent, http.MethodPut, "/sampan/volumes/"+volume); w.Code != http.StatusOK {
		t.Errorf("PUT: %d %s", w.Code, w.Body)
	}
	for _, link := range []string{"dir", "file"} {
		target := outside
		if link == "file" {
			target = file
		}
		if err := os.Symlink(target, filepath.Join(path, link)); err != nil {
			t.Fatal(err)
		}
	}
	remove()
}
