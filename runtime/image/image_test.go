package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

func TestMain(m *testing.M) {
	os.Exit(nstest.Main(m.Run))
}

// layer makes a tar file of headers; a regular file's content is its Linkname.
func layer(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: content, Mode: 0o644}
}

func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }

// entry is a file of an archive.
type entry struct {
	name string
	data []byte
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var headers []tar.Header
	for _, e := range entries {
		headers = append(headers, file(e.name, string(e.data)))
	}
	return layer(t, headers...)
}

func configOf(t testing.TB, layers ...[]byte) []byte {
	t.Helper()
	var diffs []string
	for _, l := range layers {
		diffs = append(diffs, digestOf(l))
	}
	data, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/x"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// docker makes a docker-archive.
func docker(t testing.TB, name string, layers ...[]byte) []byte {
	t.Helper()
	config := configOf(t, layers...)
	var entries []entry
	var names []string
	for i, l := range layers {
		n := fmt.Sprintf("%d/layer.tar", i)
		entries, names = append(entries, entry{n, l}), append(names, n)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": names}})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, append(entries, entry{"config.json", config}, entry{"manifest.json", manifest})...)
}

// oci makes an OCI image layout with compressed layers.
func oci(t testing.TB, name string, layers ...[]byte) []byte {
	t.Helper()
	blob := func(data []byte) entry { return entry{"blobs/sha256/" + hexOf(digestOf(data)), data} }
	config := configOf(t, layers...)
	entries := []entry{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, blob(config)}
	var descriptors []map[string]any
	for _, l := range layers {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(l); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, blob(z.Bytes()))
		descriptors = append(descriptors, map[string]any{
			"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digestOf(z.Bytes()), "size": z.Len(),
		})
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digestOf(config), "size": len(config)},
		"layers": descriptors,
	})
	if err != nil {
		t.Fatal(err)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []map[string]any{{
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digestOf(manifest), "size": len(manifest),
		"annotations": map[string]string{"org.opencontainers.image.ref.name": name},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, append(entries, blob(manifest), entry{"index.json", index})...)
}

func open(t testing.TB, dir string, noOverlay bool) *Store {
	t.Helper()
	nstest.NeedRoot(t)
	s, err := Open(Options{Dir: dir, NoOverlay: noOverlay})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustImport(t testing.TB, s *Store, archive []byte, name string) Image {
	t.Helper()
	images, err := s.Import(context.Background(), bytes.NewReader(archive), name)
	if err != nil {
		t.Fatal(err)
	}
	return images[0]
}

// mounted returns a root file system of an image.
func mounted(t testing.TB, s *Store, img *Image) string {
	t.Helper()
	target := filepath.Join(t.TempDir(), "rootfs")
	rootfs, err := s.Mount("c1", img.ID, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Unmount("c1", target); err != nil {
			t.Error(err)
		}
	})
	return rootfs
}

// tree lists a directory: "path mode uid:gid content".
func tree(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(root, func(p string, info os.FileInfo, err error) error {
		if err != nil || p == root {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(data)
		case info.Mode()&os.ModeSymlink != 0:
			if content, err = os.Readlink(p); err != nil {
				return err
			}
		}
		rel, _ := filepath.Rel(root, p)
		fmt.Fprintf(&b, "%s %v %d:%d %s\n", rel, info.Mode(), st.Uid, st.Gid, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// both runs a test with overlay mounts and with copies.
func both(t *testing.T, f func(t *testing.T, s *Store)) {
	for name, noOverlay := range map[string]bool{"overlay": false, "copy": true} {
		t.Run(name, func(t *testing.T) { f(t, open(t, t.TempDir(), noOverlay)) })
	}
}

func TestLayersLieOnEachOther(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		lower := layer(t,
			dir("bin"), file("bin/x", "program"), tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib"},
			dir("usr"), dir("usr/lib"), file("usr/lib/a", "a"), file("gone", "x"), dir("full"), file("full/old", "x"),
			tar.Header{Name: "owned", Typeflag: tar.TypeReg, Linkname: "mine", Mode: 0o4750, Uid: 1000, Gid: 50},
			tar.Header{Name: "twin", Typeflag: tar.TypeLink, Linkname: "owned"}, dir("was-dir"), file("was-dir/x", "x"),
		)
		upper := layer(t,
			file("lib/b", "through a link of the layer below"), file(".wh.gone", ""), file("full/.wh..wh..opq", ""), file("full/new", "y"),
			file("was-dir", "now a file"), file("made/on/the/way", "z"), tar.Header{Name: "fifo", Typeflag: tar.TypeFifo, Mode: 0o600},
		)
		img := mustImport(t, s, docker(t, "web:v1", lower, upper), "")
		got := tree(t, mounted(t, s, &img))
		want := `bin drwxr-xr-x 0:0 
bin/x -rw-r--r-- 0:0 program
fifo prw------- 0:0 
full drwxr-xr-x 0:0 
full/new -rw-r--r-- 0:0 y
lib Lrwxrwxrwx 0:0 /usr/lib
made drwxr-xr-x 0:0 
made/on drwxr-xr-x 0:0 
made/on/the drwxr-xr-x 0:0 
made/on/the/way -rw-r--r-- 0:0 z
owned urwxr-x--- 1000:50 mine
twin urwxr-x--- 1000:50 mine
usr drwxr-xr-x 0:0 
usr/lib drwxr-xr-x 0:0 
usr/lib/a -rw-r--r-- 0:0 a
usr/lib/b -rw-r--r-- 0:0 through a link of the layer below
was-dir -rw-r--r-- 0:0 now a file
`
		if got != want {
			t.Errorf("the image has\n%s\nwant\n%s", got, want)
		}
	})
}

func TestAnImageIsFoundByAllItsNames(t *testing.T) {
	s := open(t, t.TempDir(), false)
	img := mustImport(t, s, oci(t, "registry.example/team/web:v1", layer(t, dir("bin"))), "")
	for _, ref := range []string{
		"registry.example/team/web:v1", img.ID, hexOf(img.ID), hexOf(img.ID)[:12], "registry.example/team/web@" + img.Manifest,
	} {
		if got, err := s.Get(ref); err != nil || got.ID != img.ID {
			t.Errorf("Get(%q) = %v, %v", ref, got.ID, err)
		}
	}
	for _, ref := range []string{"registry.example/team/web:v2", "web:v1", "sha256:" + strings.Repeat("0", 64)} {
		if _, err := s.Get(ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%q): %v, want ErrNotFound", ref, err)
		}
	}
	// The store is the same after it was opened again.
	again := open(t, s.Dir(), false)
	if got, err := again.Get("registry.example/team/web:v1"); err != nil || got.ID != img.ID {
		t.Errorf("after opening again: %v, %v", got.ID, err)
	}
}

func TestANameMovesToTheNewestImage(t *testing.T) {
	s := open(t, t.TempDir(), false)
	old := mustImport(t, s, docker(t, "web:v1", layer(t, file("a", "old"))), "")
	young := mustImport(t, s, docker(t, "web:v1", layer(t, file("a", "new"))), "")
	if got, err := s.Get("web:v1"); err != nil || got.ID != young.ID {
		t.Errorf("web:v1 is %v, %v", got.ID, err)
	}
	if got, err := s.Get(old.ID); err != nil || len(got.Names) != 0 {
		t.Errorf("the old image has the names %v, %v", got.Names, err)
	}
}

func TestLayersStayAsLongAsTheyAreNeeded(t *testing.T) {
	s := open(t, t.TempDir(), false)
	shared := layer(t, file("shared", "x"))
	one := mustImport(t, s, docker(t, "one:v1", shared), "")
	two := mustImport(t, s, docker(t, "two:v1", shared, layer(t, file("own", "y"))), "")
	count := func() int {
		entries, err := os.ReadDir(s.path("layers"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if n := count(); n != 2 {
		t.Errorf("two images share a layer, but there are %d", n)
	}
	rootfs := mounted(t, s, &two)
	for _, img := range []Image{one, two} {
		if err := s.Remove(img.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 2 {
		t.Errorf("a container uses both layers, but %d are left", n)
	}
	if data, err := os.ReadFile(filepath.Join(rootfs, "shared")); err != nil || string(data) != "x" {
		t.Errorf("in the container: %q, %v", data, err)
	}
	if err := s.Unmount("c1", rootfs); err != nil {
		t.Fatal(err)
	}
	s.sweepLayers()
	if n := count(); n != 0 {
		t.Errorf("nobody needs a layer, but %d are left", n)
	}
}

func TestExportGivesTheSameImage(t *testing.T) {
	for name, archive := range map[string][]byte{
		"docker": docker(t, "web:v1", layer(t, file("a", "b"))), "oci": oci(t, "registry.example/web:v1", layer(t, file("a", "b"))),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), false)
			img := mustImport(t, s, archive, "")
			var out bytes.Buffer
			if err := s.Export(context.Background(), img.ID, &out); err != nil {
				t.Fatal(err)
			}
			got := mustImport(t, open(t, t.TempDir(), false), out.Bytes(), "")
			if got.ID != img.ID || got.Manifest != img.Manifest || strings.Join(got.Names, " ") != strings.Join(img.Names, " ") {
				t.Errorf("it came back as %v %v %v, was %v %v %v", got.ID, got.Manifest, got.Names, img.ID, img.Manifest, img.Names)
			}
		})
	}
}

// TestHostileArchivesAreRefused also checks that nothing of them is left, in the
// store or outside.
func TestHostileArchivesAreRefused(t *testing.T) {
	good := layer(t, dir("bin"))
	wrong := func(old, young string) []byte {
		return bytes.ReplaceAll(oci(t, "registry.example/web:v1", good), []byte(old), []byte(young))
	}
	bad := func(h ...tar.Header) []byte { return docker(t, "bad:v1", layer(t, h...)) }
	tests := []struct {
		name    string
		archive []byte
		want    []string
	}{
		{"name leads out", bad(file("../../escape", "x")), []string{`"../../escape"`, "leads out"}},
		{"name with dots inside", bad(file("a/../b", "x")), []string{`"a/../b"`}},
		{"hard link leads out", bad(tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../../etc/passwd"}), []string{`"l"`, "etc/passwd"}},
		{"hard link to nothing", bad(tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "nothing"}), []string{`"l"`, "nothing"}},
		{"whiteout of the parent", bad(dir("d"), file("d/.wh...", "")), []string{"d/.wh..."}},
		{"whiteout of the directory", bad(dir("d"), file("d/.wh..", "")), []string{"d/.wh.."}},
		{"overlay's whiteout", bad(tar.Header{Name: "dev", Typeflag: tar.TypeChar}), []string{`"dev"`, "0:0"}},
		{"root is a file", bad(tar.Header{Name: "./", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), []string{"root"}},
		{"unknown type", bad(tar.Header{Name: "odd", Typeflag: 'Z'}), []string{`"odd"`, "type"}},
		{"archive with a device", layer(t, tar.Header{Name: "manifest.json", Typeflag: tar.TypeChar, Devmajor: 1}), []string{`"manifest.json"`, "type"}},
		{"archive leads out", layer(t, file("../x", "y")), []string{`"../x"`}},
		{"archive links out", layer(t, tar.Header{Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"}), []string{"etc/passwd"}},
		{"archive links in a circle", layer(t, tar.Header{Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: "manifest.json"}), []string{"leads nowhere"}},
		{"not an image", tarOf(t, entry{"hello", []byte("x")}), []string{"manifest.json", "index.json"}},
		{"not a tar", []byte(strings.Repeat("hello", 1000)), []string{"not a tar"}},
		{"empty", nil, []string{"archive is empty"}},
		{"cut off", docker(t, "web:v1", good)[:700], []string{"cut off"}},
		{"bad JSON", tarOf(t, entry{"manifest.json", []byte("[{")}), []string{`"manifest.json"`}},
		{"a layer is missing", tarOf(t, entry{"c", configOf(t, good)}, entry{"manifest.json", []byte(`[{"Config":"c","Layers":["nope"]}]`)}), []string{`"nope"`}},
		{"layer isn't what the configuration says", tarOf(t, entry{"c", configOf(t, good)}, entry{"l", layer(t, dir("other"))},
			entry{"manifest.json", []byte(`[{"Config":"c","Layers":["l"]}]`)}), []string{"digest", "damaged or was changed"}},
		{"fewer layers than announced", tarOf(t, entry{"c", configOf(t, good, good)}, entry{"l", good},
			entry{"manifest.json", []byte(`[{"Config":"c","Layers":["l"]}]`)}), []string{"2 layers"}},
		{"another machine", tarOf(t, entry{"c", bytes.ReplaceAll(configOf(t, good), []byte(runtime.GOARCH), []byte("s390x"))}, entry{"l", good},
			entry{"manifest.json", []byte(`[{"Config":"c","Layers":["l"]}]`)}), []string{"s390x"}},
		{"blob isn't what its name says", wrong("imageLayout", "imageLayout"), nil},
		{"bad name", docker(t, "UPPER/case:v1", good), []string{"UPPER"}},
		{"larger than allowed", bad(file("big", strings.Repeat("x", 5<<20))), []string{"5242880", "at most"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nstest.NeedRoot(t)
			outer := t.TempDir()
			s, err := Open(Options{Dir: filepath.Join(outer, "a", "b"), MaxSize: 4 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if tt.name == "blob isn't what its name says" {
				config := configOf(t, good)
				tt.archive = bytes.Replace(oci(t, "registry.example/web:v1", good), config, bytes.ToUpper(config), 1)
				tt.want = []string{"blobs/sha256/" + hexOf(digestOf(config)), "damaged or was changed"}
			}
			if tt.name == "larger than allowed" {
				tt.want = []string{"4194304 bytes"}
			}
			before := tree(t, outer)
			_, err = s.Import(context.Background(), bytes.NewReader(tt.archive), "")
			if err == nil {
				t.Fatal("it was imported")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v; want it to mention %s", err, w)
				}
			}
			if after := tree(t, outer); after != before {
				t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestImportRefusesOtherFiles has inputs that are no archives. The error does not call them cut off.
func TestImportRefusesOtherFiles(t *testing.T) {
	s := openStore(t)
	for _, text := range []string{"hello\n", strings.Repeat("x", 5000), "PK\x03\x04" + strings.Repeat("\x00", 600)} {
		_, err := s.Import(t.Context(), strings.NewReader(text), "")
		if want := "importing an image: this is not a tar file (docker-archive or OCI image layout)"; err == nil || err.Error() != want {
			t.Errorf("%.10q: %v, want %s", text, err, want)
		}
	}
}

func TestImportLeavesFreeSpace(t *testing.T) {
	for _, tt := range []struct {
		name             string
		most, free, want int64
	}{
		{"much free space", 100, 10_000, 100},
		{"little free space", 100, 50, 45},
		{"none", 100, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			room := roomFor(tt.most, tt.free)
			if err := room.take(tt.want); err != nil {
				t.Fatalf("%d bytes: %v", tt.want, err)
			}
			err := room.take(1)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(tt.want, " bytes")) {
				t.Fatalf("one byte more: %v, want an error that names %d bytes", err, tt.want)
			}
			if free := errors.Is(err, unix.ENOSPC); free != (tt.want < tt.most) {
				t.Errorf("%v: it is ENOSPC: %v", err, free)
			}
		})
	}
}

// TestSizeCountsSharedLayers imports two images of one archive that share a layer, and
// one that has no other layer.
func TestSizeCountsSharedLayers(t *testing.T) {
	s := open(t, t.TempDir(), false)
	base, top := layer(t, file("base", strings.Repeat("b", 5000))), layer(t, file("top", "t"))
	bothConfig, baseConfig := configOf(t, base, top), configOf(t, base)
	mustImport(t, s, tarOf(t, entry{"base.tar", base}, entry{"top.tar", top}, entry{"both.json", bothConfig}, entry{"base.json", baseConfig},
		entry{"manifest.json", []byte(`[{"Config":"both.json","RepoTags":["both:v1"],"Layers":["base.tar","top.tar"]},
			{"Config":"base.json","RepoTags":["base:v1"],"Layers":["base.tar"]}]`)}), "")
	check := func(s *Store, name string, want int) {
		t.Helper()
		img, err := s.Get(name)
		if err != nil || img.Size != uint64(want) {
			t.Errorf("%s has the size %d, %v, want %d", name, img.Size, err, want)
		}
	}
	check(s, "both:v1", len(base)+len(top))
	check(s, "base:v1", len(base))
	// A store of a version with another measure reports the same.
	img, err := s.Get("base:v1")
	if err != nil {
		t.Fatal(err)
	}
	img.Size = 0
	if err := s.saveImage(&img); err != nil {
		t.Fatal(err)
	}
	check(open(t, s.Dir(), false), "base:v1", len(base))
}

func TestLinksAreFollowedWithinTheImage(t *testing.T) {
	outer := t.TempDir()
	s := open(t, filepath.Join(outer, "store"), false)
	outside := filepath.Join(outer, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	img := mustImport(t, s, docker(t, "tricky:v1", layer(t,
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside},
		file("out/escape", "x"),
		tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../../../../../.."},
		file("up/landed", "x"),
	)), "")
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside the image: %v, %v", left, err)
	}
	got := tree(t, mounted(t, s, &img))
	for _, want := range []string{strings.TrimPrefix(outside, "/") + "/escape", "\nlanded "} {
		if !strings.Contains("\n"+got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestImportToFullDiskKeepsImages(t *testing.T) {
	nstest.NeedRoot(t)
	disk := t.TempDir()
	if err := unix.Mount("disk", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	s := open(t, disk, false)
	small := mustImport(t, s, docker(t, "small:v1", layer(t, file("a", "b"))), "")
	before := tree(t, disk)
	for _, size := range []int{3 << 20, 5 << 20} { // full while unpacking, and while reading
		_, err := s.Import(context.Background(), bytes.NewReader(docker(t, "big:v1", layer(t, file("big", strings.Repeat("x", size))))), "")
		if err == nil || !strings.Contains(err.Error(), "too little free space") || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), disk) {
			t.Errorf("Import = %v, want an error that says that the disk with %s has too little free space", err, disk)
		}
		if after := tree(t, disk); after != before {
			t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
		}
	}
	if got, err := s.Get("small:v1"); err != nil || got.ID != small.ID {
		t.Errorf("the image that was there: %v, %v", got.ID, err)
	}
	mounted(t, s, &small)
}

// TestWithoutOverlayfs puts the store where an overlay can't be: on another one.
func TestWithoutOverlayfs(t *testing.T) {
	nstest.NeedRoot(t)
	base := t.TempDir()
	for _, d := range []string{"l", "u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sub := func(n string) string { return filepath.Join(base, n) }
	if err := mountOverlay(sub("m"), []string{sub("l")}, sub("u"), sub("w")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sub("m"), unix.MNT_DETACH) })
	s := open(t, sub("m"), false)
	if s.Overlay() {
		t.Fatal("an overlay on an overlay is said to work")
	}
	img := mustImport(t, s, docker(t, "web:v1", layer(t, file("a", "one")), layer(t, file("b", "two"), file(".wh.a", ""))), "")
	rootfs := mounted(t, s, &img)
	if got, want := tree(t, rootfs), "b -rw-r--r-- 0:0 two\n"; got != want {
		t.Errorf("the copy has %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(rootfs, "b"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmount("c1", filepath.Join(base, "not mounted")); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, mounted(t, s, &img)); got != "b -rw-r--r-- 0:0 two\n" {
		t.Errorf("the next container sees %q", got)
	}
}

func TestAnImportThatWasCutOffIsForgotten(t *testing.T) {
	s := open(t, t.TempDir(), false)
	mustImport(t, s, docker(t, "web:v1", layer(t, file("a", "b"))), "")
	before := tree(t, s.Dir())
	// What a process that was killed leaves: temporary files, and a layer that no
	// image has.
	for _, d := range []string{"tmp/import1/x", "layers/0123456789abcdef01234567/fs"} {
		if err := os.MkdirAll(filepath.Join(s.Dir(), d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, s.Dir(), false)
	if after := tree(t, again.Dir()); after != before {
		t.Errorf("after opening again:\n%s\nbefore:\n%s", after, before)
	}
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"web": "docker.io/library/web:latest", "team/web:v1": "docker.io/team/web:v1", "sampan.local/demo:v1": "sampan.local/demo:v1",
		"docker.io/web": "docker.io/library/web:latest", "index.docker.io/web:v1": "docker.io/library/web:v1", "docker.io/team/web": "docker.io/team/web:latest",
		"localhost/web": "localhost/web:latest", "host:5000/a/b": "host:5000/a/b:latest",
		"web@sha256:" + strings.Repeat("a", 64):    "docker.io/library/web@sha256:" + strings.Repeat("a", 64),
		"web:v1@sha256:" + strings.Repeat("a", 64): "docker.io/library/web@sha256:" + strings.Repeat("a", 64),
	} {
		if got, err := Normalize(in); err != nil || got != want {
			t.Errorf("Normalize(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Web", "web:", "web:-x", "a//b", "web@sha256:abc", "web@md5:abc", "-web", "a b", "host.example/"} {
		if got, err := Normalize(in); err == nil {
			t.Errorf("Normalize(%q) = %q, want an error", in, got)
		}
	}
}

// FuzzNormalize checks that a normalized name stays as it is.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{"web", "team/web:v1", "host:5000/a/b@sha256:" + strings.Repeat("0", 64), "a.b/c", ":", "/", "@"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once, err := Normalize(name)
		if err != nil {
			return
		}
		if twice, err := Normalize(once); err != nil || twice != once {
			t.Errorf("Normalize(%q) = %q, and again %q, %v", name, once, twice, err)
		}
	})
}

// FuzzApply checks that unpacking never panics and never leaves its directory.
func FuzzApply(f *testing.F) {
	f.Add(layer(f, dir("a"), file("a/b", "c"), tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, file("l/x", "y")))
	f.Add(layer(f, file(".wh.a", ""), file("d/.wh..wh..opq", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		root := filepath.Join(outer, "root")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = apply(root, tar.NewReader(bytes.NewReader(data)), roomFor(1<<20, 1<<30))
		if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
			t.Errorf("beside the root: %v, %v", entries, err)
		}
	})
}
