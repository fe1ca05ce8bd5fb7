// Command images writes an archive, as docker save does, of stand-ins for the images that critest uses: Debian's
// busybox, dash and a few other programs, and small servers. It needs the Debian packages busybox-static, dash, procps and
// util-linux.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	e2e      = "registry.k8s.io/e2e-test-images/"
	criTools = "gcr.io/k8s-staging-cri-tools/"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: images FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	images := map[name.Reference]v1.Image{}
	for _, d := range definitions() {
		img, err := d.build()
		if err != nil {
			return fmt.Errorf("%s: %w", d.names[0], err)
		}
		for _, n := range d.names {
			ref, err := name.NewTag(n)
			if err != nil {
				return err
			}
			images[ref] = img
		}
	}
	return tarball.MultiRefWriteToFile(path, images)
}

// A definition is one image: busybox, a shell, and more files.
type definition struct {
	names   []string
	user    string
	command []string
	mark    string // makes the image differ from others
	add     func(l *layer) error
}

func definitions() []definition {
	all := []definition{
		{names: []string{e2e + "busybox:1.29-2"}, command: []string{"sh"}, mark: "busybox"},
		{names: []string{e2e + "nginx:1.14-2"}, command: []string{"/usr/sbin/nginx"}, mark: "nginx", add: addServer},
		{names: []string{e2e + "httpd:2.4.39-4"}, command: []string{"/usr/sbin/nginx"}, mark: "httpd", add: addServer},
		{names: []string{criTools + "hostnet-nginx-" + runtime.GOARCH + ":latest"}, command: []string{"/usr/sbin/nginx", "12003"}, mark: "hostnet", add: addServer},
		{names: []string{e2e + "nonewprivs:1.3"}, command: []string{"/usr/sbin/nnp"}, mark: "nnp", add: addSetUID},
		{names: []string{criTools + "test-image-predefined-group:latest"}, command: []string{"sh"}, user: "1000", mark: "group"},
		{names: []string{"registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"}, command: []string{"sleep", "infinity"}, mark: "pause"},
		{names: []string{criTools + "test-image-latest:latest"}, mark: "latest"},
		{names: []string{criTools + "test-image-tag:test"}, mark: "tag"},
		{names: []string{criTools + "test-image-tag:all"}, mark: "all"},
		{names: []string{criTools + "test-image-tags:1", criTools + "test-image-tags:2", criTools + "test-image-tags:3"}, mark: "tags"},
	}
	for _, n := range []string{"1", "2", "3"} {
		all = append(all, definition{names: []string{criTools + "test-image-" + n + ":latest"}, mark: n})
	}
	for suffix, user := range map[string]string{
		"uid": "1002", "username": "www-data", "uid-group": "1003:www-data", "username-group": "www-data:100",
	} {
		all = append(all, definition{names: []string{criTools + "test-image-user-" + suffix + ":latest"}, user: user, mark: suffix})
	}
	return all
}

func (d *definition) build() (v1.Image, error) {
	l := &layer{}
	l.tar = tar.NewWriter(&l.data)
	if err := l.base(d.mark); err != nil {
		return nil, err
	}
	if d.add != nil {
		if err := d.add(l); err != nil {
			return nil, err
		}
	}
	if err := l.tar.Close(); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.data.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	if d.command == nil {
		d.command = []string{"sh"}
	}
	file.Config = v1.Config{User: d.user, Cmd: d.command, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	return mutate.ConfigFile(img, file)
}

// A layer is being written.
type layer struct {
	data bytes.Buffer
	tar  *tar.Writer
}

func (l *layer) put(path string, mode int64, content []byte) error {
	return errors.Join(
		l.tar.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}),
		func() error { _, err := l.tar.Write(content); return err }(),
	)
}

func (l *layer) copyFrom(host, path string) error {
	content, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	return l.put(path, 0o755, content)
}

// base has busybox with its programs, dash as the shell (that of busybox does not execute /bin/ls for ls), and users.
func (l *layer) base(mark string) error {
	var errs []error
	for dir, mode := range map[string]int64{
		"bin": 0o755, "usr": 0o755, "usr/sbin": 0o755, "etc": 0o755, "tmp": 0o1777, "var": 0o755, "var/run": 0o777, "root": 0o700, "mnt": 0o755, "lib64": 0o755,
	} {
		errs = append(errs, l.tar.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode}))
	}
	errs = append(errs, l.copyFrom("/bin/busybox", "bin/busybox"), l.hostPrograms(map[string]string{
		"/bin/dash": "bin/sh", "/usr/bin/ipcs": "bin/ipcs", "/usr/bin/pgrep": "bin/pgrep",
	}))
	programs, err := exec.Command("/bin/busybox", "--list").Output()
	errs = append(errs, err)
	for program := range strings.FieldsSeq(string(programs)) {
		if !slices.Contains([]string{"sh", "busybox", "ipcs", "pgrep"}, program) {
			errs = append(errs, l.tar.WriteHeader(&tar.Header{Name: "bin/" + program, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}))
		}
	}
	errs = append(errs,
		l.put("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\ndefault-user:x:1000:1000::/tmp:/bin/sh\n")),
		l.put("etc/group", 0o644, []byte("root:x:0:\nusers:x:100:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")),
		l.put("etc/mark", 0o644, []byte(mark+"\n")),
	)
	return errors.Join(errs...)
}

// hostPrograms copies programs of this machine with their libraries.
func (l *layer) hostPrograms(programs map[string]string) error {
	var errs []error
	done := map[string]bool{}
	for host, path := range programs {
		errs = append(errs, l.copyFrom(host, path))
		libraries, err := exec.Command("ldd", host).Output()
		errs = append(errs, err)
		for field := range strings.FieldsSeq(string(libraries)) {
			if strings.HasPrefix(field, "/") && !done[field] {
				done[field] = true
				errs = append(errs, l.copyFrom(field, strings.TrimPrefix(field, "/")))
			}
		}
	}
	return errors.Join(errs...)
}

// server is a stand-in for nginx and httpd.
const server = `package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"syscall"
)

func main() {
	if os.Args[0] == "/usr/sbin/nginx" {
		args := append([]string{"nginx: master process /usr/sbin/nginx"}, os.Args[1:]...)
		log.Fatal(syscall.Exec(os.Args[0], args, os.Environ()))
	}
	port := "80"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	fmt.Println("this is a stand-in for nginx and httpd")
	_ = os.WriteFile("/var/run/nginx.pid", []byte(fmt.Sprintln(os.Getpid())), 0o644)
	log.Fatal(http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "It works!")
	})))
}
`

// setUID prints its effective user, and is installed so that it is root's.
const setUID = `package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
`

func addServer(l *layer) error { return l.program("usr/sbin/nginx", 0o755, server) }
func addSetUID(l *layer) error { return l.program("usr/sbin/nnp", 0o4755, setUID) }

// program compiles a program of one file.
func (l *layer) program(path string, mode int64, source string) error {
	dir, err := os.MkdirTemp("", "critest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", out, file)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	return l.put(path, mode, content)
}
