package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image"
)

// A Builtin is a set of images that come with the program.
type Builtin struct {
	IDs     map[string]string // their ids by name
	Archive func() io.Reader  // opens the archive that holds them
}

// importOnce imports built-in images, unless they are there.
func importOnce(ctx context.Context, store *image.Store, b Builtin) error {
	for name, id := range b.IDs {
		if img, err := store.Get(name); err != nil || img.ID != id {
			_, err := store.Import(ctx, b.Archive(), "")
			return err
		}
	}
	return nil
}

// imageService is CRI's second service.
type imageService struct {
	cri.UnimplementedImageServiceServer
	server *Server
	pulls  *pulls
}

// builtin reports whether an image with that normalized name comes with the program.
func (s *Server) builtin(name string) bool {
	return slices.ContainsFunc(s.opts.Images, func(b Builtin) bool { _, ok := b.IDs[name]; return ok })
}

// criImage describes an image for CRI. The built-in images are pinned: no registry has them.
func (i *imageService) criImage(img *image.Image) *cri.Image {
	out := &cri.Image{
		Id: img.ID, RepoTags: img.Names, RepoDigests: img.Digests(), Size: max(img.Size, 1), Spec: &cri.ImageSpec{Image: img.ID},
		Pinned: slices.ContainsFunc(img.Names, i.server.builtin),
	}
	if imported := img.ImportedRepositories(); len(imported) > 0 {
		out.Spec.Annotations = map[string]string{names.ImportedRepositories: strings.Join(imported, ",")}
	}
	if uid, name, numeric := container.NumericUser(img.Config.Config.User); numeric {
		out.Uid = &cri.Int64Value{Value: uid}
	} else {
		out.Username = name
	}
	return out
}

// ListImages implements CRI.
func (i *imageService) ListImages(ctx context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	store, err := i.server.store(ctx)
	if err != nil {
		return nil, err
	}
	res := &cri.ListImagesResponse{}
	if ref := req.GetFilter().GetImage().GetImage(); ref != "" {
		if img, err := store.Get(ref); err == nil {
			res.Images = append(res.Images, i.criImage(&img))
		}
		return res, nil
	}
	for _, img := range store.List() {
		res.Images = append(res.Images, i.criImage(&img))
	}
	return res, nil
}

// ImageStatus implements CRI: an image that isn't there is no error.
func (i *imageService) ImageStatus(ctx context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	store, err := i.server.store(ctx)
	if err != nil {
		return nil, err
	}
	img, err := store.Get(req.GetImage().GetImage())
	switch {
	case errors.Is(err, image.ErrNotFound):
		return &cri.ImageStatusResponse{}, nil
	case err != nil:
		return nil, invalid("%v", err)
	}
	res := &cri.ImageStatusResponse{Image: i.criImage(&img)}
	if req.GetVerbose() {
		info, err := json.Marshal(struct {
			ChainID   string        `json:"chainID"`
			ImageSpec ocispec.Image `json:"imageSpec"`
			Manifest  string        `json:"manifest"`
			Imported  time.Time     `json:"imported"`
			Layers    []image.Layer `json:"layers"`
		}{img.Layers[len(img.Layers)-1].ChainID, img.Config, img.Manifest, img.Imported, img.Layers})
		if err != nil {
			return nil, err
		}
		res.Info = map[string]string{"info": string(info)}
	}
	return res, nil
}

// RemoveImage implements CRI. To remove what isn't there is no error.
func (i *imageService) RemoveImage(ctx context.Context, req *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	store, err := i.server.store(ctx)
	if err != nil {
		return nil, err
	}
	if err := store.Remove(req.GetImage().GetImage()); err != nil && !errors.Is(err, image.ErrNotFound) {
		return nil, err
	}
	return &cri.RemoveImageResponse{}, nil
}

// ImageFsInfo implements CRI.
func (i *imageService) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	store, err := i.server.store(ctx)
	if err != nil {
		return nil, err
	}
	images, containers, err := store.Usage()
	if err != nil {
		return nil, err
	}
	usage := func(s image.Space) []*cri.FilesystemUsage {
		return []*cri.FilesystemUsage{{
			Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: store.Dir()},
			UsedBytes: &cri.UInt64Value{Value: s.Bytes}, InodesUsed: &cri.UInt64Value{Value: s.Inodes},
		}}
	}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage(images), ContainerFilesystems: usage(containers)}, nil
}

// nodeService is what CRI has no word for.
type nodeService struct {
	api.UnimplementedNodeServer
	server *Server
	images *imageService
}

// Info implements the service of package api.
func (n *nodeService) Info(context.Context, *api.InfoRequest) (*api.InfoResponse, error) {
	s := n.server
	res := &api.InfoResponse{
		Version: s.opts.Version, Pid: int32(os.Getpid()), StartedAt: s.started.UnixNano(),
		AdoptedPods: int32(s.adopted[0]), AdoptedContainers: int32(s.adopted[1]),
		BridgeAddress: commas(s.network.Gateways()), PodCidr: commas(s.opts.PodCIDRs), ServiceCidr: commas(s.opts.ServiceCIDRs), Limitations: s.limitations(),
	}
	if s.opts.Handed != nil {
		res.Restarts = int32(s.opts.Handed.Restarts)
	}
	return res, nil
}

// Restart implements the service of package api.
func (n *nodeService) Restart(ctx context.Context, _ *api.RestartRequest) (*api.RestartResponse, error) {
	if err := n.server.Restart(ctx); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &api.RestartResponse{}, nil
}

// Import implements the service of package api.
func (n *nodeService) Import(stream grpc.ClientStreamingServer[api.ImportRequest, api.ImportResponse]) error {
	store, err := n.server.store(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return invalid("the archive is empty")
	}
	if err != nil {
		return err
	}
	images, err := store.Import(stream.Context(), &chunks{stream: stream, rest: first.GetData()}, first.GetName())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	res := &api.ImportResponse{}
	for _, img := range images {
		res.Images = append(res.Images, &api.Image{Id: img.ID, Names: img.Names, Size: img.Size})
	}
	return stream.SendAndClose(res)
}

// chunks reads the bytes of a stream.
type chunks struct {
	stream grpc.ClientStreamingServer[api.ImportRequest, api.ImportResponse]
	rest   []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		m, err := c.stream.Recv()
		if err != nil {
			return 0, err
		}
		c.rest = m.GetData()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Export implements the service of package api.
func (n *nodeService) Export(req *api.ExportRequest, stream grpc.ServerStreamingServer[api.ExportResponse]) error {
	store, err := n.server.store(stream.Context())
	if err != nil {
		return err
	}
	if strings.TrimSpace(req.GetImage()) == "" {
		return invalid("an image must be named")
	}
	if err := store.Export(stream.Context(), req.GetImage(), &sender{stream}); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}

type sender struct {
	stream grpc.ServerStreamingServer[api.ExportResponse]
}

func (s *sender) Write(p []byte) (int, error) {
	const most = 1 << 20 // of a message, so that a reader needs little memory
	for sent := 0; sent < len(p); sent += most {
		if err := s.stream.Send(&api.ExportResponse{Data: bytes.Clone(p[sent:min(len(p), sent+most)])}); err != nil {
			return sent, err
		}
	}
	return len(p), nil
}
