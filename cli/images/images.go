package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/runtime/api"
)

// images are the verbs about the images of the node on this machine.
type images struct {
	*session.Globals
	socket  string // empty means that of the cluster called Name
	foreign bool   // the socket is that of a runtime that others run
}

// Command returns the verb image, with the verbs below it.
func Command(g *session.Globals) *cobra.Command {
	i := &images{Globals: g}
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Work with the container images of this machine's node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&i.socket, "runtime-endpoint", "", "`socket` of another container runtime; list, remove, prune and pull work with any CRI runtime")
	verb := func(use, short string, args cobra.PositionalArgs, f func(context.Context, *grpc.ClientConn, []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := i.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			return i.explain(f(cmd.Context(), conn, args))
		}}
	}
	name := ""
	load := verb("import FILE | -", "Import images from an archive (docker save, OCI layout as tar), or from the standard input", cobra.ExactArgs(1),
		func(ctx context.Context, conn *grpc.ClientConn, args []string) error {
			return i.load(ctx, conn, args[0], name)
		})
	load.Example = "  docker save shop/web:v2 | sampan image import -"
	load.Flags().StringVar(&name, "image", "", "name for an image without a name in the archive")
	list := verb("list", "List the images", cobra.NoArgs, i.list)
	list.Aliases = []string{"ls"}
	remove := verb("remove IMAGE…", "Remove images", cobra.MinimumNArgs(1), i.remove)
	remove.Aliases = []string{"rm"}
	inspect := verb("inspect IMAGE…", "Print everything about images, as JSON or with -o yaml", cobra.MinimumNArgs(1), i.inspect)
	cmd.AddCommand(load, list, remove, inspect, i.pullCommand(verb), i.saveCommand(verb), i.pruneCommand(verb))
	return cmd
}

// A verbMaker makes a command that is called with a connection to the container runtime.
type verbMaker func(use, short string, args cobra.PositionalArgs, f func(context.Context, *grpc.ClientConn, []string) error) *cobra.Command

func (i *images) dial() (*grpc.ClientConn, error) {
	path, start := strings.TrimPrefix(i.socket, "unix://"), "sampan up"
	if path == "" {
		p, err := local.NewProfile(i.Name, i.DataDir)
		if err != nil {
			return nil, err
		}
		path = p.RuntimeSocket()
		if running, _, err := p.Instance(); err == nil && running.Runtime.Endpoint != "" {
			path, i.foreign = strings.TrimPrefix(running.Runtime.Endpoint, "unix://"), true
		}
		if at, err := p.Located(); err == nil && i.DataDir == "" {
			p = at
		}
		if _, member, err := p.Member(); err == nil && member {
			start = "sampan join"
		}
		start += p.NameFlag()
	}
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("cannot connect to the container runtime at %s: permission denied; the image commands need root", path)
		}
		if os.Getuid() != 0 && i.socket == "" {
			return nil, fmt.Errorf("the images of a cluster are those of its real node, and that needs root: run the command with sudo; simulated nodes have no images")
		}
		return nil, fmt.Errorf("the container runtime of cluster %q is not running on this machine (%s does not exist): start it with '%s'%s", i.Name, path, start, i.others())
	}
	i.socket = path
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", path, err)
	}
	return conn, nil
}

// others returns which clusters of this machine have images, for the end of an error; "" if none has.
func (i *images) others() string {
	p, err := local.NewProfile(i.Name, "")
	if i.socket != "" || err != nil {
		return ""
	}
	clusters, _ := p.Clusters() // the error is about the cluster that does not run
	var names []string
	for _, c := range clusters {
		if c.Running && c.Name != i.Name && !c.Instance.Simulated {
			names = append(names, "--name="+c.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; the images of other clusters that run on this machine: pass " + strings.Join(names, " or ")
}

// explain takes gRPC's words out of an error.
func (i *images) explain(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		return fmt.Errorf("the container runtime at %s does not respond; check it with 'sampan status'", i.socket)
	case codes.NotFound:
		return exit.With(exit.Gone, errors.New(s.Message()))
	case codes.DeadlineExceeded:
		return exit.With(exit.TimedOut, errors.New(s.Message()))
	case codes.Canceled:
		return context.Canceled
	case codes.Unimplemented:
		if i.foreign {
			return fmt.Errorf("the cluster uses the container runtime at %s, which has its own tools for this; for containerd, ctr -n k8s.io images import FILE", i.socket)
		}
		return fmt.Errorf("the container runtime at %s does not support this: it is not Sampan's", i.socket)
	default:
		return errors.New(s.Message())
	}
}

// importChunk is below the 1 MiB that the service takes in one message.
const importChunk = 256 << 10

func (i *images) load(ctx context.Context, conn *grpc.ClientConn, file, name string) error {
	in := i.In
	if file != "-" {
		f, err := os.Open(file)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("the path %q does not exist", file)
		case err != nil:
			return fmt.Errorf("the file %q cannot be read: %w", file, err)
		}
		defer f.Close()
		in = f
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewNodeClient(conn).Import(ctx)
	if err != nil {
		return err
	}
	buf := make([]byte, importChunk)
	for first := true; ; first = false {
		n, readErr := io.ReadFull(in, buf)
		if n > 0 || first {
			req := &api.ImportRequest{Data: buf[:n]}
			if first {
				req.Name = name
			}
			// The runtime that has seen enough ends the stream; CloseAndRecv
			// says why.
			if err := stream.Send(req); err != nil {
				break
			}
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return fmt.Errorf("%s cannot be read: %w", file, readErr)
		}
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return fmt.Errorf("%s: %w", file, i.explain(err))
	}
	for _, image := range answer.GetImages() {
		for _, n := range orID(image.GetNames(), image.GetId()) {
			_, _ = fmt.Fprintf(i.Out, "%s imported\n", n)
		}
	}
	return nil
}

func (i *images) list(ctx context.Context, conn *grpc.ClientConn, _ []string) error {
	answer, err := runtimeapi.NewImageServiceClient(conn).ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	images := []image{} // none is a list, too
	for _, m := range answer.GetImages() {
		images = append(images, image{Names: orID(m.GetRepoTags(), m.GetId()), Digests: m.GetRepoDigests(), ID: m.GetId(), Bytes: m.GetSize()})
	}
	sorting.Slice(images, func(a, b image) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return printImages(i.Out, i.Output, images)
}

// An image is one as -o json and -o yaml print it.
type image struct {
	Names   []string `json:"names"` // its ID, if it has none
	Digests []string `json:"digests,omitempty"`
	ID      string   `json:"id"`
	Bytes   uint64   `json:"sizeBytes"`
}

// printImages writes images as -o wants it; a name is a line in tables.
func printImages(w io.Writer, format string, images []image) error {
	switch format {
	case "json":
		text, err := json.MarshalIndent(images, "", "    ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.Marshal(images)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case "", "wide", "name":
	default:
		return fmt.Errorf("-o %s: must be json, yaml, name or not set", format)
	}
	var rows [][]string
	for _, m := range images {
		for _, n := range m.Names {
			rows = append(rows, []string{n, shortID(m.ID), size(m.Bytes)})
		}
	}
	sorting.Slice(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	if format == "name" {
		for _, r := range rows {
			if _, err := fmt.Fprintln(w, r[0]); err != nil {
				return err
			}
		}
		return nil
	}
	t := show.NewTable(w)
	t.Row([]string{"IMAGE", "ID", "SIZE"})
	for _, r := range rows {
		t.Row(r)
	}
	return t.Flush()
}

func (i *images) remove(ctx context.Context, conn *grpc.ClientConn, names []string) error {
	c := runtimeapi.NewImageServiceClient(conn)
	var errs []error
	for _, n := range names {
		spec := &runtimeapi.ImageSpec{Image: n}
		// For CRI the removal of an image that does not exist is no error. Report it, because
		// the name may be a typing error.
		got, err := c.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err == nil && got.GetImage() == nil {
			err = exit.With(exit.Gone, fmt.Errorf("image %q not found", n))
		}
		if err == nil {
			_, err = c.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec})
		}
		if err != nil {
			errs = append(errs, i.explain(err))
			continue
		}
		_, _ = fmt.Fprintf(i.Out, "%s removed\n", n)
	}
	return errors.Join(errs...)
}

func orID(names []string, id string) []string {
	if len(names) == 0 {
		return []string{id}
	}
	return names
}

func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(12, len(id))]
}

// size returns a number of bytes in the largest decimal unit of which there is one.
func size(n uint64) string {
	const step = 1000
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/step, 0
	for ; value >= step-0.05 /* which is printed as step */ && unit < len(units)-1; unit++ {
		value /= step
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

// units are the prefixes of the thousands of bytes.
const units = "kMGT"
