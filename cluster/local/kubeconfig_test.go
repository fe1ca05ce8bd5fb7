package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const otherConfig = "apiVersion: v1\nkind: Config\ncurrent-context: work\ncontexts:\n- name: work\n  context: {cluster: work, user: me}\n"

// TestMergedKubeconfigIsPrivate merges the administrator's key into files that others may read.
func TestMergedKubeconfigIsPrivate(t *testing.T) {
	p := Profile{Name: "a", DataDir: t.TempDir()}
	if err := p.SaveKubeconfig(Credentials{Server: "https://127.0.0.1:6443", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}); err != nil {
		t.Fatal(err)
	}
	mode := func(file string) os.FileMode {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	config := func(perm os.FileMode) string {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(otherConfig), perm); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, perm); err != nil {
			t.Fatal(err)
		}
		return file
	}
	merge := func(file string) {
		t.Helper()
		if _, err := p.Merge(t.Context(), file); err != nil {
			t.Fatal(err)
		}
	}
	for perm, want := range map[os.FileMode]os.FileMode{0o644: 0o600, 0o660: 0o600, 0o604: 0o600, 0o755: 0o700, 0o600: 0o600} {
		file := config(perm)
		merge(file)
		if got := mode(file); got != want {
			t.Errorf("a file with mode %o has %o, want %o", perm, got, want)
		}
	}
	t.Run("merged before", func(t *testing.T) {
		file := config(0o600)
		merge(file)
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		merge(file)
		if got := mode(file); got != 0o600 {
			t.Errorf("mode %o", got)
		}
	})
	t.Run("symbolic link", func(t *testing.T) {
		file, link := config(0o644), filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		merge(link)
		if got := mode(file); got != 0o600 {
			t.Errorf("the file behind the link has mode %o", got)
		}
	})
	t.Run("list", func(t *testing.T) {
		first, second := config(0o644), config(0o644)
		t.Setenv("KUBECONFIG", first+string(filepath.ListSeparator)+second)
		merge("")
		for _, file := range []string{first, second} {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "client-key-data") && mode(file) != 0o600 {
				t.Errorf("%s has the key and mode %o", file, mode(file))
			}
		}
	})
	t.Run("new file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "new", "config")
		merge(file)
		if got := mode(file); got != 0o600 {
			t.Errorf("mode %o", got)
		}
	})
}

func TestTightenReportsForeignFile(t *testing.T) {
	err := tighten("/proc/self/status") // its mode cannot be changed
	if err == nil || !strings.Contains(err.Error(), "chmod 600") || !strings.Contains(err.Error(), "0444") {
		t.Errorf("%v, want the mode and what to do", err)
	}
}

func TestKubeconfigForAnotherAddress(t *testing.T) {
	p := Profile{Name: "a", DataDir: t.TempDir()}
	if err := p.SaveKubeconfig(Credentials{Server: "https://127.0.0.1:6443", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{
		"https://192.0.2.1:6443": "https://192.0.2.1:6443", "192.0.2.1:6443": "https://192.0.2.1:6443", "host": "https://host",
		"http://192.0.2.1": "", "ftp://x": "", "https://": "", "a b": "", "https://:6443": "", "https://h:0": "", "https://h:66666": "",
		"https://u:p@h": "", "https://h?x=1": "",
	} {
		got, err := WithServer(data, server)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "--server")):
			t.Errorf("%q: %v", server, err)
		case want != "" && (err != nil || !strings.Contains(string(got), "server: "+want+"\n") || !strings.Contains(string(got), "client-key-data")):
			t.Errorf("%q: %s, %v", server, got, err)
		}
	}
}

// TestMergeLeavesOtherFilesAlone has files that clientcmd reads as kubeconfigs without contexts.
func TestMergeLeavesOtherFilesAlone(t *testing.T) {
	p := Profile{Name: "a", DataDir: t.TempDir()}
	if err := p.SaveKubeconfig(Credentials{Server: "https://127.0.0.1:6443", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	for text, refused := range map[string]bool{"::: not yaml\n": true, "a: b\n": true, "": false, "\n": false, "clusters: []\n": false, "kind: Config\n": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := p.Merge(t.Context(), file)
		after, _ := os.ReadFile(file)
		if refused != (err != nil) || refused && (string(after) != text || !strings.Contains(err.Error(), "is not a kubeconfig")) {
			t.Errorf("%q: %v, and the file is\n%s", text, err, after)
		}
	}
}
