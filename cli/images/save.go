package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/internal/terminal"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/runtime/api"
)

func (i *images) saveCommand(verb verbMaker) *cobra.Command {
	file := ""
	cmd := verb("save IMAGE", "Write an image to an archive (OCI layout as tar)", cobra.ExactArgs(1),
		func(ctx context.Context, conn *grpc.ClientConn, args []string) error {
			return i.save(ctx, conn, args[0], file)
		})
	cmd.Flags().StringVarP(&file, "file", "f", "-", "`file` to write; - means the standard output")
	return cmd
}

// save writes an image to a file, which is there in the end only if it is whole.
func (i *images) save(ctx context.Context, conn *grpc.ClientConn, image, file string) error {
	stream, err := api.NewNodeClient(conn).Export(ctx, &api.ExportRequest{Image: image})
	if err != nil {
		return err
	}
	receive := func() ([]byte, error) {
		res, err := stream.Recv()
		return res.GetData(), err
	}
	if file != "-" {
		return saveTo(file, receive)
	}
	out := terminal.Raw(i.Out)
	if _, is := terminal.File(out); is {
		return errors.New("the archive is not written to a terminal: pass --file, or redirect the standard output")
	}
	return copyAll(out, receive)
}

// saveTo writes all parts that receive returns to a file, which stays as it was if that fails.
func saveTo(file string, receive func() ([]byte, error)) error {
	f, err := wholefile.CreateOutput(file, 0o644) // like any file that a user writes
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := copyAll(f, receive); err != nil {
		return err
	}
	return f.Commit()
}

// copyAll writes all parts that receive returns before io.EOF.
func copyAll(out io.Writer, receive func() ([]byte, error)) error {
	for {
		part, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
}

// inspect prints images with their configuration.
func (i *images) inspect(ctx context.Context, conn *grpc.ClientConn, names []string) error {
	c := runtimeapi.NewImageServiceClient(conn)
	var errs []error
	list := []map[string]any{}
	for _, n := range names {
		res, err := c.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: n}, Verbose: true})
		if err == nil && res.GetImage() == nil {
			err = exit.With(exit.Gone, fmt.Errorf("image %q not found", n))
		}
		if err != nil {
			errs = append(errs, i.explain(err))
			continue
		}
		list = append(list, details(res))
	}
	data, err := json.MarshalIndent(list, "", "    ")
	switch i.Output {
	case "", "json":
	case "yaml":
		data, err = yaml.Marshal(list)
	default:
		err = fmt.Errorf("-o %s: must be json, yaml or not set", i.Output)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(i.Out, "%s\n", strings.TrimSuffix(string(data), "\n"))
	return errors.Join(append(errs, err)...)
}

// details joins the runtime's information about an image.
func details(res *runtimeapi.ImageStatusResponse) map[string]any {
	m := res.GetImage()
	out := map[string]any{"id": m.GetId(), "names": m.GetRepoTags(), "digests": m.GetRepoDigests(), "sizeBytes": m.GetSize(), "pinned": m.GetPinned()}
	var info map[string]any
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &info) == nil {
		for key, value := range info {
			out[key] = value
		}
	}
	return out
}

func (i *images) pruneCommand(verb verbMaker) *cobra.Command {
	all, dry := false, false
	cmd := verb("prune", "Remove the images that have no name and that no container uses", cobra.NoArgs,
		func(ctx context.Context, conn *grpc.ClientConn, _ []string) error {
			return i.prune(ctx, conn, all, dry)
		})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "remove all images that no container uses, also those with names; built-in images stay")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	return cmd
}

// prune removes images that no container uses.
func (i *images) prune(ctx context.Context, conn *grpc.ClientConn, all, dry bool) error {
	containers, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	c := runtimeapi.NewImageServiceClient(conn)
	answer, err := c.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	var errs []error
	freed := uint64(0)
	for _, m := range answer.GetImages() {
		used := slices.ContainsFunc(containers.GetContainers(), func(c *runtimeapi.Container) bool { return uses(c, m) })
		if used || m.GetPinned() || !all && len(m.GetRepoTags()) > 0 {
			continue
		}
		if !dry {
			if _, err := c.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: m.GetId()}}); err != nil {
				errs = append(errs, i.explain(err))
				continue
			}
		}
		freed += m.GetSize()
		word := "removed"
		if dry {
			word = "would be removed"
		}
		_, _ = fmt.Fprintf(i.Out, "%s %s\n", orID(m.GetRepoTags(), m.GetId())[0], word)
	}
	if freed == 0 && len(errs) == 0 {
		_, _ = fmt.Fprintln(i.Err, "no images to remove")
		return nil
	}
	_, _ = fmt.Fprintf(i.Err, "images of %s\n", size(freed))
	return errors.Join(errs...)
}

// uses reports whether a container was made from an image.
func uses(c *runtimeapi.Container, m *runtimeapi.Image) bool {
	for _, ref := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
		if ref != "" && (ref == m.GetId() || slices.Contains(m.GetRepoTags(), ref) || slices.Contains(m.GetRepoDigests(), ref)) {
			return true
		}
	}
	return false
}
