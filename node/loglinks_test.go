package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

func TestLogCollectorsFindLogs(t *testing.T) {
	logs, links := t.TempDir(), filepath.Join(t.TempDir(), "containers")
	n := &Node{opts: Options{LogDir: logs, LogLinks: links}, log: slog.New(slog.DiscardHandler)}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "web", "u1"
	path := filepath.Join(logs, "ns_web_u1", crispec.LogPath("main", 2))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("line"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := order{pod: pod, container: &corev1.Container{Name: "main"}, attempt: 2}
	for range 2 { // a second time is no error
		n.linkLog(o, "0123456789abcdef")
	}
	link := filepath.Join(links, "web_ns_main-0123456789abcdef.log")
	if text, err := os.ReadFile(link); err != nil || string(text) != "line" {
		t.Errorf("%q, %v", text, err)
	}
	// The links of others stay, and so do those whose logs are there.
	foreign := filepath.Join(links, "web_ns_main-ffff.log")
	if err := os.Symlink("/nowhere/log", foreign); err != nil {
		t.Fatal(err)
	}
	n.unlinkLogs(pod)
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(logs, "ns_web_u1")); err != nil {
		t.Fatal(err)
	}
	n.unlinkLogs(pod)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link stays: %v", err)
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Errorf("a link of another program: %v", err)
	}
	pod.Name = strings.Repeat("x", 250)
	n.linkLog(o, "0123456789abcdef")
	if entries, err := os.ReadDir(links); err != nil || len(entries) != 2 || len(entries[1].Name()) != 255 {
		t.Errorf("a long name: %v, %v", entries, err)
	}
}
