package operators

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rogpeppe/go-internal/testscript"
)

// importImage is image NAME PROGRAM [USER [PATH]]: it imports an image into the node of the session. The image has the
// program of bin/operators at this path (default /bin/PROGRAM), runs it as a user with this number (default 1000), and
// has an empty /tmp.
func importImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 4 {
		ts.Fatalf("usage: image NAME PROGRAM [USER [PATH]]")
	}
	user, inside := "1000", "/bin/"+args[1]
	if len(args) > 2 {
		user = args[2]
	}
	if len(args) > 3 {
		inside = args[3]
	}
	file := ts.MkAbs(args[1] + ".image.tar")
	ts.Check(writeImage(file, args[0], inside, filepath.Join(ts.Getenv("OPERATORS"), args[1]), user))
	ts.Check(ts.Exec("sampan", "image", "import", file, "--name="+ts.Getenv("CLUSTER")))
	ts.Check(os.Remove(file))
}

// writeImage writes an archive as `docker save` does, with an image of one layer.
func writeImage(file, name, inside, program, user string) error {
	layer := file + ".layer"
	defer os.Remove(layer)
	digest, err := writeLayer(layer, inside, program, user)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"User": user, "Entrypoint": []string{inside}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	return writeTar(file, func(w *tar.Writer) error {
		return errors.Join(
			addData(w, "config.json", config),
			addData(w, "manifest.json", manifest),
			addFile(w, "layer.tar", layer, 0o644),
		)
	})
}

// writeLayer writes the layer of an image and returns its digest.
func writeLayer(file, inside, program, user string) (string, error) {
	err := writeTar(file, func(w *tar.Writer) error {
		return errors.Join(
			addData(w, "etc/passwd", fmt.Appendf(nil, "root:x:0:0::/:\nuser:x:%s:%s::/tmp:\n", user, user)),
			w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}),
			addFile(w, inside[1:], program, 0o755),
		)
	})
	if err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
}

func writeTar(file string, fill func(*tar.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	return errors.Join(fill(w), w.Close(), f.Close())
}

func addData(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func addFile(w *tar.Writer, name, file string, mode int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
