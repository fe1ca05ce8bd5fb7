package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
)

// archive FILE docker|oci [NAME=VALUE…] makes an archive with the image that its
// comments below describe. The values say what is special about it:
//
//	name=NAME      another name than test.local/image:1
//	fault=FAULT    what is wrong with it; see archiveFaults
//	gzip=yes       all of it is compressed
//	cmd=WORD       what the container does, without other settings of the image
//	program=DIR    another program of this module instead of the demo, as /bin/demo
func archive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: archive FILE docker|oci [NAME=VALUE…]")
	}
	o := map[string]string{"name": "test.local/image:1"}
	for _, a := range args[2:] {
		name, value, _ := bytes.Cut([]byte(a), []byte{'='})
		o[string(name)] = string(value)
	}
	demo, err := buildProgram(ts.Getenv("WORK"), "..", "./cmd/sampan-demo")
	if dir := o["program"]; dir != "" {
		demo, err = buildProgram(ts.Getenv("WORK"), ".", dir)
	}
	ts.Check(err)
	data := makeArchive(demo, args[1], o)
	if o["gzip"] != "" {
		data = compressed(data)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// buildProgram returns a program that is built from a package of a module; dir is for its file.
func buildProgram(dir, module, pkg string) ([]byte, error) {
	file := filepath.Join(dir, filepath.Base(pkg)+".bin")
	if data, err := os.ReadFile(file); err == nil {
		return data, nil
	}
	cmd := exec.Command("go", "build", "-o", file, pkg)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if module == ".." {
		cmd.Env = append(cmd.Env, "GOWORK=")
	}
	if home, err := os.UserHomeDir(); err == nil { // not the session's
		cmd.Env = append(cmd.Env, "HOME="+home)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building a program: %w\n%s", err, out)
	}
	return os.ReadFile(file)
}

// makeArchive makes an image of two layers, the first compressed. The second takes
// a file away, hides what was in a directory, and adds a file.
func makeArchive(demo []byte, format string, o map[string]string) []byte {
	lower := []entry{
		{name: "bin/demo", data: demo, mode: 0o755},
		{name: "etc/passwd", data: []byte("root:x:0:0::/:/bin/demo\nada:x:1234:1235::/home:/bin/demo\n")},
		{name: "etc/group", data: []byte("root:x:0:\nada:x:1235:\nfriends:x:1300:ada\n")},
		{name: "home/", uid: 1234},
		{name: "home/gone", data: []byte("gone")},
		{name: "home/kept", data: []byte("kept")},
		{name: "hidden/old", data: []byte("old")},
		{name: "bin/link", link: "/bin/demo"},
	}
	upper := []entry{
		{name: "home/.wh.gone"},
		{name: "hidden/.wh..wh..opq"},
		{name: "hidden/new", data: []byte("new")},
		{name: "seed/", uid: 1234},
		{name: "seed/file", data: []byte("seed")},
	}
	if more := archiveFaults[o["fault"]].layer; more != nil {
		upper = append(upper, more...)
	}
	layers := [][]byte{tarball(lower), tarball(upper)}
	var diffIDs []string
	for _, l := range layers {
		diffIDs = append(diffIDs, digestOf(l))
	}
	layers[0] = compressed(layers[0])
	config := map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"User": "ada", "WorkingDir": "/home", "Entrypoint": []string{"/bin/demo"}, "Cmd": []string{"echo", "from", "cmd"},
			"Env": []string{"DEMO_VERSION=image", "FROM=image"}, "Volumes": map[string]any{"/seed": struct{}{}}, "StopSignal": "SIGTERM",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	}
	if word := o["cmd"]; word != "" {
		config["config"] = map[string]any{"Entrypoint": []string{"/bin/demo"}, "Cmd": []string{word}}
	}
	if f := archiveFaults[o["fault"]].config; f != nil {
		f(config)
	}
	var files []entry
	if format == "docker" {
		files = []entry{
			{name: "config.json", data: encode(config)},
			{name: "one/layer.tar", data: layers[0]},
			{name: "two/layer.tar", data: layers[1]},
			{name: "manifest.json", data: encode([]any{map[string]any{
				"Config": "config.json", "RepoTags": []string{o["name"]}, "Layers": []string{"one/layer.tar", "two/layer.tar"},
			}})},
		}
	} else {
		files = layout(o["name"], encode(config), layers)
	}
	if f := archiveFaults[o["fault"]].files; f != nil {
		files = f(files)
	}
	data := tarball(files)
	if f := archiveFaults[o["fault"]].bytes; f != nil {
		data = f(data)
	}
	return data
}

// layout is an OCI image layout.
func layout(name string, config []byte, layers [][]byte) []entry {
	var files []entry
	blob := func(media string, data []byte) map[string]any {
		digest := digestOf(data)
		files = append(files, entry{name: "blobs/sha256/" + digest[len("sha256:"):], data: data})
		return map[string]any{"mediaType": media, "digest": digest, "size": len(data)}
	}
	const oci = "application/vnd.oci.image."
	manifest := blob(oci+"manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": blob(oci+"config.v1+json", config),
		"layers": []any{blob(oci+"layer.v1.tar+gzip", layers[0]), blob(oci+"layer.v1.tar", layers[1])},
	}))
	manifest["annotations"] = map[string]string{"org.opencontainers.image.ref.name": name}
	return append(
		files,
		entry{name: "oci-layout", data: encode(map[string]string{"imageLayoutVersion": "1.0.0"})},
		entry{name: "index.json", data: encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})},
	)
}

// archiveFaults are what can be wrong with an archive.
var archiveFaults = map[string]struct {
	layer  []entry              // more entries of the second layer
	config func(map[string]any) // changes the configuration
	files  func([]entry) []entry
	bytes  func([]byte) []byte
}{
	"":       {},
	"climbs": {layer: []entry{{name: "../../../../tmp/sampan-evil", data: []byte("evil")}}},
	// A link out of the image, and a file through it: it stays inside.
	"detour":  {layer: []entry{{name: "out", link: "/../../../../tmp"}, {name: "out/sampan-evil", data: []byte("evil")}}},
	"strange": {layer: []entry{{name: "strange", kind: 'Z'}}},
	"machine": {config: func(c map[string]any) { c["architecture"] = "s390x" }},
	"diff": {config: func(c map[string]any) {
		c["rootfs"] = map[string]any{"type": "layers", "diff_ids": []string{digestOf(nil), digestOf([]byte("x"))}}
	}},
	"lacks": {files: func(files []entry) []entry {
		return slices.DeleteFunc(files, func(e entry) bool { return e.name == "two/layer.tar" })
	}},
	"damaged": {files: func(files []entry) []entry {
		for i, e := range files {
			if filepath.Dir(e.name) == "blobs/sha256" {
				files[i].data = append(bytes.Clone(e.data), 'x')
				break
			}
		}
		return files
	}},
	"json": {files: func(files []entry) []entry {
		return append(files, entry{name: "manifest.json", data: []byte(`[{"Config":`)})
	}},
	"no-image": {files: func([]entry) []entry { return []entry{{name: "README", data: []byte("hello")}} }},
	"cut":      {bytes: func(data []byte) []byte { return data[:len(data)/2] }},
	"empty":    {bytes: func([]byte) []byte { return nil }},
	"text":     {bytes: func([]byte) []byte { return bytes.Repeat([]byte("This is no archive. "), 100) }},
	"many": {files: func(files []entry) []entry {
		for i := range 200_000 {
			files = append(files, entry{name: fmt.Sprintf("link-%d", i), link: "manifest.json"})
		}
		return files
	}},
}

// An entry of a tar file: a directory if its name ends with a slash, else a link or
// a file.
type entry struct {
	name, link string
	data       []byte
	mode       int64 // 0 means 0644, or 0755 for a directory
	uid        int
	kind       byte // another type than these
}

func tarball(entries []entry) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.uid, Gid: e.uid, Size: int64(len(e.data)), Typeflag: tar.TypeReg, Linkname: e.link}
		switch {
		case e.kind != 0:
			h.Typeflag = e.kind
		case e.link != "":
			h.Typeflag = tar.TypeSymlink
		case e.name[len(e.name)-1] == '/':
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		must(w.WriteHeader(h))
		_, err := w.Write(e.data)
		must(err)
	}
	must(w.Close())
	return buf.Bytes()
}

func compressed(data []byte) []byte {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	must(err)
	_, err = w.Write(data)
	must(err)
	must(w.Close())
	return buf.Bytes()
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	must(err)
	return data
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// must is for what can't fail: everything is in memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
