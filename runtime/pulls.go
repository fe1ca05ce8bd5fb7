package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/image"
	"github.com/sampan-io/sampan/runtime/registry"
)

// pulls are the pulls under way. Callers that want the same image with the same credentials share one; it is cancelled
// when the last of them has gone.
type pulls struct {
	client *registry.Client
	store  func() *image.Store // not nil once images are served
	group  *run.Group

	mu   sync.Mutex
	busy map[string]*pulling // guarded by mu; by what is wanted
}

// A pulling is one pull under way.
type pulling struct {
	progress image.Progress
	cancel   context.CancelFunc
	callers  int           // guarded by pulls.mu
	done     chan struct{} // closed when img and err are set
	img      image.Image
	err      error
}

func newPulls(client *registry.Client, store func() *image.Store, group *run.Group) *pulls {
	return &pulls{client: client, store: store, group: group, busy: map[string]*pulling{}}
}

// A pullRequest is what is pulled, and how.
type pullRequest struct {
	Name        string // normalized
	Platform    image.Platform
	Credentials registry.Credentials
}

// key identifies the request without showing its secrets.
func (r pullRequest) key() (string, error) {
	data, err := json.Marshal(r)
	sum := sha256.Sum256(data)
	return string(sum[:]), err
}

// pull pulls an image, or waits for the pull of another caller. watch is called at the beginning with the progress, if it
// is not nil.
func (p *pulls) pull(ctx context.Context, r pullRequest, watch func(*image.Progress, <-chan struct{})) (image.Image, error) {
	key, err := r.key()
	if err != nil {
		return image.Image{}, err
	}
	one, err := p.join(key, r)
	if err != nil {
		return image.Image{}, err
	}
	defer p.leave(key, one)
	if watch != nil {
		watch(&one.progress, one.done)
	}
	select {
	case <-one.done:
		return one.img, one.err
	case <-ctx.Done():
		return image.Image{}, fmt.Errorf("pulling image %q: %w", r.Name, ctx.Err())
	}
}

func (p *pulls) join(key string, r pullRequest) (*pulling, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.busy[key]; one != nil {
		one.callers++
		return one, nil
	}
	one := &pulling{done: make(chan struct{}), callers: 1}
	started := make(chan struct{})
	ok := p.group.Go(func(ctx context.Context) {
		ctx, one.cancel = context.WithCancel(ctx)
		defer one.cancel()
		close(started)
		one.err = run.Catch(func() (err error) { one.img, err = p.do(ctx, r, &one.progress); return err })
		p.forget(key, one)
		close(one.done)
	})
	if !ok {
		return nil, status.Error(codes.Unavailable, "the runtime is stopping")
	}
	<-started
	p.busy[key] = one
	return one, nil
}

// leave ends the interest of a caller.
func (p *pulls) leave(key string, one *pulling) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.callers--; one.callers == 0 {
		one.cancel()
		if p.busy[key] == one {
			delete(p.busy, key) // a caller that comes now starts another pull
		}
	}
}

func (p *pulls) forget(key string, one *pulling) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[key] == one {
		delete(p.busy, key)
	}
}

func (p *pulls) do(ctx context.Context, r pullRequest, progress *image.Progress) (image.Image, error) {
	from, err := p.client.Repository(image.Repository(r.Name), r.Credentials)
	if err != nil {
		return image.Image{}, fmt.Errorf("pulling image %q: %w", r.Name, err)
	}
	defer from.Close()
	return p.store().Pull(ctx, r.Name, r.Platform, from, progress)
}

// pullCode gives the error of a pull its code.
func pullCode(err error) error {
	var code codes.Code
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, registry.ErrDenied):
		code = codes.PermissionDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	default:
		return err
	}
	return status.Error(code, err.Error())
}

// ownRegistry begins the names of images that come with the program. There is no such registry.
const ownRegistry = "sampan.local/"

// request checks the arguments of a pull. The image is returned if it is there and there is nothing to pull: the built-in
// images have no registry.
func (i *imageService) request(ref string, auth *cri.AuthConfig, platform string) (pullRequest, *image.Image, error) {
	store := i.server.images.Load()
	if hex := strings.TrimPrefix(ref, "sha256:"); len(hex) == 64 || hex != ref { // an id
		// An id names no registry that would ask for credentials, so only the built-in images are returned for one.
		if img, err := store.Get(ref); err == nil && slices.ContainsFunc(img.Names, func(n string) bool { return strings.HasPrefix(n, ownRegistry) }) {
			return pullRequest{}, &img, nil
		}
		return pullRequest{}, nil, status.Errorf(codes.NotFound, "image %q is an id, which no registry can be asked for", ref)
	}
	full, err := image.Normalize(ref)
	if err != nil {
		return pullRequest{}, nil, invalid("%v", err)
	}
	r := pullRequest{Name: full, Credentials: registry.Credentials{
		Username: auth.GetUsername(), Password: auth.GetPassword(), Auth: auth.GetAuth(), ServerAddress: auth.GetServerAddress(),
		IdentityToken: auth.GetIdentityToken(), RegistryToken: auth.GetRegistryToken(),
	}}
	if r.Platform, err = image.ParsePlatform(platform); err != nil {
		return r, nil, invalid("%v", err)
	}
	if strings.HasPrefix(full, ownRegistry) {
		img, err := store.Get(full)
		if err != nil {
			return r, nil, status.Errorf(codes.NotFound, "image %q is not on this node, and no registry has it: %s", ref, insteadOf(full, store.List()))
		}
		return r, &img, nil
	}
	return r, nil, nil
}

// insteadOf returns what to do about an image without a registry that is not on the node.
func insteadOf(name string, there []image.Image) string {
	var tags []string
	for _, img := range there {
		for _, n := range img.Names {
			if image.Repository(n) == image.Repository(name) {
				tags = append(tags, n)
			}
		}
	}
	if len(tags) > 0 {
		slices.Sort(tags)
		return "the node has " + strings.Join(tags, ", ")
	}
	return "import it with \"sampan image import FILE\""
}

// PullImage implements CRI.
func (i *imageService) PullImage(ctx context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	if _, err := i.server.store(ctx); err != nil {
		return nil, err
	}
	r, there, err := i.request(req.GetImage().GetImage(), req.GetAuth(), "")
	if err != nil {
		return nil, err
	}
	if there != nil {
		return &cri.PullImageResponse{ImageRef: there.ID}, nil
	}
	img, err := i.pulls.pull(ctx, r, nil)
	if err != nil {
		return nil, pullCode(err)
	}
	return &cri.PullImageResponse{ImageRef: img.ID}, nil
}

// progressPause is the time between two reports of the progress of a pull: as often as a person sees a difference.
const progressPause = 200 * time.Millisecond

// Pull implements the service of package api.
func (n *nodeService) Pull(req *api.PullRequest, stream grpc.ServerStreamingServer[api.PullResponse]) error {
	ctx := stream.Context()
	if _, err := n.server.store(ctx); err != nil {
		return err
	}
	r, there, err := n.images.request(req.GetImage(), &cri.AuthConfig{
		Username: req.GetUsername(), Password: req.GetPassword(), Auth: req.GetAuth(), ServerAddress: req.GetServerAddress(),
		IdentityToken: req.GetIdentityToken(), RegistryToken: req.GetRegistryToken(),
	}, req.GetPlatform())
	if err != nil {
		return err
	}
	if there != nil {
		return stream.Send(&api.PullResponse{Id: there.ID})
	}
	var last *image.Progress
	img, err := n.images.pulls.pull(ctx, r, func(p *image.Progress, done <-chan struct{}) {
		last = p
		reportProgress(ctx, stream, p, done)
	})
	if err != nil {
		return pullCode(err)
	}
	res := progressResponse(last)
	res.Id = img.ID
	return stream.Send(res)
}

// reportProgress sends the progress of a pull when it has changed, until the pull is done.
func reportProgress(ctx context.Context, stream grpc.ServerStreamingServer[api.PullResponse], p *image.Progress, done <-chan struct{}) {
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	var sent *api.PullResponse
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := progressResponse(p)
		if sent != nil && now.GetFetched() == sent.GetFetched() && now.GetUnpacked() == sent.GetUnpacked() && now.GetLayers() == sent.GetLayers() {
			continue
		}
		if stream.Send(now) != nil {
			return
		}
		sent = now
	}
}

func progressResponse(p *image.Progress) *api.PullResponse {
	return &api.PullResponse{Layers: p.Layers.Load(), Bytes: p.Bytes.Load(), Fetched: p.Fetched.Load(), Unpacked: p.Unpacked.Load()}
}
