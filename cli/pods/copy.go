package pods

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

type copying struct {
	*session.Globals
	container  string
	noPreserve bool
}

// Copy returns the verb cp.
func Copy(g *session.Globals) *cobra.Command {
	c := &copying{Globals: g}
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files to and from a container",
		Long: "Copy a file or a directory to or from a container, whose image must have 'tar'. One of FROM and TO is a local path, the\n" +
			"other one is POD:PATH or NAMESPACE/POD:PATH.\n\n" +
			"Symbolic links in a container are not copied to this machine, and nothing is written outside of TO.",
		Example: "  sampan cp ./site web:/srv\n  sampan cp web:/var/log/app.log app.log\n  sampan cp prod/web:/etc/nginx ./nginx -c proxy",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := placeOf(args[0])
			if err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			to, err := placeOf(args[1])
			if err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			switch {
			case from.pod != "" && to.pod != "":
				return exit.Usage(cmd.CommandPath(), errors.New("one of src or dest must be a local file specification"))
			case from.pod == "" && to.pod == "":
				return exit.Usage(cmd.CommandPath(), errors.New("one of src or dest must be a remote file specification"))
			case from.path == "" || to.path == "":
				return exit.Usage(cmd.CommandPath(), errors.New("filepath can not be empty"))
			}
			return c.run(cmd.Context(), from, to)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.container, "container", "c", "", "container name")
	f.BoolVar(&c.noPreserve, "no-preserve", false, "do not preserve owner and permissions of files in the container")
	return cmd
}

// A place is a path here or in a container.
type place struct{ namespace, pod, path string }

// placeOf reads [[NAMESPACE/]POD:]PATH. A text that begins like a path is one, even if it has a colon.
func placeOf(text string) (place, error) {
	before, after, ok := strings.Cut(text, ":")
	if !ok || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		return place{path: text}, nil
	}
	namespace, pod, two := strings.Cut(before, "/")
	switch {
	case !two:
		return place{pod: before, path: after}, needPod(before)
	case strings.Contains(pod, "/"):
		return place{}, fmt.Errorf("filespec must match the canonical format: [[namespace/]pod:]file/path, got %q", text)
	}
	return place{namespace, pod, after}, needPod(pod)
}

func needPod(name string) error {
	if name == "" {
		return errors.New("filespec must match the canonical format: [[namespace/]pod:]file/path")
	}
	return nil
}

func (c *copying) run(ctx context.Context, from, to place) error {
	s, err := c.Connect()
	if err != nil {
		return err
	}
	rest, err := s.Typed()
	if err != nil {
		return err
	}
	there := from
	if to.pod != "" {
		there = to
	}
	if there.namespace == "" {
		there.namespace = s.Namespace
	}
	pod, err := client.Pods.Get(ctx, rest, there.namespace, there.pod)
	if err != nil {
		return err
	}
	if err := assigned(s, pod); err != nil {
		return err
	}
	container, err := containerOf(pod, c.container, c.Err)
	if err != nil {
		return err
	}
	in := &inside{client: rest, pod: pod, container: container}
	if from.pod != "" {
		return c.fetch(ctx, in, there.path, to.path)
	}
	return c.send(ctx, in, from.path, there.path)
}

// An inside runs commands in a container.
type inside struct {
	client    *client.REST
	pod       *corev1.Pod
	container string
}

// run runs a command. A nil reader means no standard input.
func (i *inside) run(ctx context.Context, in io.Reader, out, errOut io.Writer, command ...string) error {
	k := &streaming{Streams: captured(in, out, errOut), stdin: in != nil, quiet: true}
	return k.connect(ctx, i.client, call{subresource: "exec", pod: i.pod, container: i.container, command: command})
}

// testLimit bounds the question whether a path in a container is a directory.
const testLimit = 30 * time.Second

// send copies a local path into a container.
func (c *copying) send(ctx context.Context, in *inside, from, to string) error {
	if _, err := os.Stat(from); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s doesn't exist in local filesystem", from)
		}
		return err
	}
	limited, cancel := context.WithTimeout(ctx, testLimit)
	err := in.run(limited, nil, io.Discard, io.Discard, "test", "-d", to)
	expired := limited.Err() != nil
	cancel()
	absolute, absErr := filepath.Abs(from)
	switch {
	case absErr != nil:
		return absErr
	case expired:
		return context.Cause(limited)
	case err == nil:
		to = path.Join(to, filepath.Base(absolute))
	}
	command := []string{"tar", "-xmf", "-"}
	if c.noPreserve {
		command = []string{"tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-"}
	}
	to = path.Clean(to)
	if dir := path.Dir(to); dir != "" {
		command = append(command, "-C", dir)
	}
	archive, w := io.Pipe()
	var packed error
	g := run.NewGroup(ctx, 0)
	g.Go(func(context.Context) {
		packed = pack(w, absolute, path.Base(to))
		_ = w.CloseWithError(packed) // nil stands for the end
	})
	err = in.run(ctx, archive, c.Out, c.Err, command...)
	_ = archive.CloseWithError(io.ErrClosedPipe)
	g.Stop()
	if packed != nil && !errors.Is(packed, io.ErrClosedPipe) {
		return packed
	}
	k := &streaming{Streams: c.Streams}
	return k.ended(err)
}

// pack writes a path as an archive, in which it has another name.
func pack(w io.Writer, from, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		return packOne(archive, at, path.Join(name, filepath.ToSlash(below)))
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func packOne(archive *tar.Writer, at, name string) error {
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(at); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil // it has no contents, and archives have no sockets
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	if header.Name = name; info.IsDir() {
		header.Name += "/"
	}
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(archive, f, info.Size()) // a file that grows is cut off
	return err
}

// fetch copies a path in a container to this machine.
func (c *copying) fetch(ctx context.Context, in *inside, from, to string) error {
	archive, w := io.Pipe()
	var ended error
	g := run.NewGroup(ctx, 0)
	g.Go(func(ctx context.Context) {
		ended = in.run(ctx, nil, w, c.Err, "tar", "cf", "-", from)
		_ = w.Close()
	})
	err := c.unpack(archive, from, to)
	if err != nil {
		_ = archive.CloseWithError(err)
		g.Stop()
		return err
	}
	_, _ = io.Copy(io.Discard, archive) // what follows the end of the archive
	g.Wait()
	g.Stop()
	k := &streaming{Streams: c.Streams}
	return k.ended(ended)
}

// unpack writes the files of an archive of one path below another. The container made the archive: it is not trusted.
func (c *copying) unpack(r io.Reader, from, to string) error {
	prefix := strings.TrimPrefix(path.Clean("/"+from), "/")
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	info, err := os.Stat(to)
	intoDir := err == nil && info.IsDir()
	warned := false
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if name != prefix && prefix != "" && !strings.HasPrefix(name, prefix+"/") {
			return errors.New("tar contents corrupted")
		}
		if header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink {
			if !warned {
				_, _ = fmt.Fprintf(c.Err, "warning: skipping symlink: %q -> %q\n", name, header.Linkname)
				warned = true
			}
			continue
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, prefix), "/")
		if below == "" && intoDir && !header.FileInfo().IsDir() {
			below = path.Base(prefix) // a file; of a directory only the contents are copied
		}
		if err := unpackOne(archive, header, to, below); err != nil {
			return err
		}
	}
}

// unpackOne writes one file. Links on this machine that lead out of the target are not followed.
func unpackOne(from io.Reader, header *tar.Header, to, below string) error {
	dir, name := filepath.Dir(to), filepath.Base(to)
	if err := os.MkdirAll(dir, 0o755); err != nil { // as kubectl
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	at := filepath.Join(name, filepath.FromSlash(below))
	if header.FileInfo().IsDir() {
		return root.MkdirAll(at, 0o755)
	}
	if header.Typeflag != tar.TypeReg {
		return nil // devices and pipes have no contents
	}
	if err := root.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := root.Create(at)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
