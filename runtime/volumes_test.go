package runtime_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// volumeImage is an archive of an image with the demo program, some files, and places
// that it declares as volumes.
func volumeImage(t *testing.T, name string, places ...string) *bytes.Buffer {
	t.Helper()
	write := func(headers []tar.Header, data [][]byte) *bytes.Buffer {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for i, h := range headers {
			h.Size = int64(len(data[i]))
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	layer := write([]tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin/demo", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 1000, Gid: 1000},
		{Name: "data/greeting", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 1000, Gid: 1000},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/data"},
	}, [][]byte{nil, built.demo, nil, []byte("hello\n"), nil}).Bytes()
	hash := func(data []byte) string { sum := sha256.Sum256(data); return hex.EncodeToString(sum[:]) }
	volumes := map[string]any{}
	for _, p := range places {
		volumes[p] = map[string]any{}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/bin/demo"}, "User": "1000", "Volumes": volumes},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hash(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": hash(config) + ".json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	return write([]tar.Header{file("layer.tar"), file(hash(config) + ".json"), file("manifest.json")}, [][]byte{layer, config, manifest})
}

func TestImagesHaveVolumes(t *testing.T) {
	n := newNode(t).start()
	const name = "example.org/volumes:v1"
	if _, err := n.importArchive(volumeImage(t, name, "/data/", "/new/deep", "/link"), ""); err != nil {
		t.Fatal(err)
	}
	target := n.kit().Target
	target.Image = name
	left := func() []string {
		dirs, err := filepath.Glob(n.path("root/containers/*/volumes/*"))
		if err != nil {
			t.Fatal(err)
		}
		return dirs
	}
	t.Run("a container's own", func(t *testing.T) {
		k := runtimetest.NewKit(t, target)
		p := k.PodConfig("volumes")
		pod := k.Pod(p)
		c := k.ContainerConfig("one", "sleep")
		c.Linux.SecurityContext.ReadonlyRootfs = true
		one, _ := k.ContainerIn(pod, p, c)
		two, _ := k.ContainerIn(pod, p, k.ContainerConfig("two", "sleep"))
		if len(left()) != 4 { // one place is a link to another
			t.Errorf("two containers have the volumes %q, want two each", left())
		}
		// The user of the image may write where the image says so, and only there.
		if out, errs, code := k.Exec(one, "read", "/data/greeting"); out != "hello\n" || code != 0 {
			t.Errorf("what the image has there: %q %q %d", out, errs, code)
		}
		if _, errs, code := k.Exec(one, "write", "/data/greeting", "changed"); code != 0 {
			t.Errorf("writing to a volume: %d %q", code, errs)
		}
		if out, _, _ := k.Exec(two, "read", "/data/greeting"); out != "hello\n" {
			t.Errorf("the other container reads %q", out)
		}
		if _, errs, code := k.Exec(two, "list", "/new/deep"); code != 0 {
			t.Errorf("a place that the image doesn't have: %d %q", code, errs)
		}
	})
	if got := left(); len(got) != 0 {
		t.Errorf("the containers are gone, and of their volumes are left %q", got)
	}
	t.Run("a mount goes before", func(t *testing.T) {
		k := runtimetest.NewKit(t, target)
		p := k.PodConfig("mounted")
		c := k.ContainerConfig("main", "list", "/data")
		host := t.TempDir()
		if err := os.Chmod(host, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(host, "mine"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		c.Mounts = []*cri.Mount{{HostPath: host, ContainerPath: "/data"}}
		if got := k.OutputOf(k.Pod(p), p, c); got != "mine\n" {
			t.Errorf("/data holds %q", got)
		}
	})
}

func TestAVolumeThatIsAFileIsRefused(t *testing.T) {
	n := newNode(t).start()
	const name = "example.org/broken:v1"
	if _, err := n.importArchive(volumeImage(t, name, "/data/greeting"), ""); err != nil {
		t.Fatal(err)
	}
	k := n.kit()
	k.Image = name
	p := k.PodConfig("broken")
	_, err := n.runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: k.Pod(p), SandboxConfig: p, Config: k.ContainerConfig("main", "sleep")})
	if err == nil || !strings.Contains(err.Error(), "volume /data/greeting of the image: the image has a file there") {
		t.Errorf("CreateContainer = %v, want an error that names the volume", err)
	}
}
