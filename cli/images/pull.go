package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/internal/terminal"
	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/runtime/api"
)

// pullFlags are the flags of image pull.
type pullFlags struct {
	creds    string
	platform string
	timeout  time.Duration
}

func (i *images) pullCommand(verb verbMaker) *cobra.Command {
	var f pullFlags
	cmd := verb("pull IMAGE…", "Pull images from their registries", cobra.MinimumNArgs(1),
		func(ctx context.Context, conn *grpc.ClientConn, names []string) error {
			if f.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, f.timeout)
				defer cancel()
			}
			var errs []error
			for _, n := range names {
				if err := i.pull(ctx, conn, n, f); err != nil {
					errs = append(errs, i.explain(err))
					continue
				}
				_, _ = fmt.Fprintf(i.Out, "%s pulled\n", n)
			}
			return errors.Join(errs...)
		})
	cmd.Long = "Pull images from their registries into the container runtime of this machine's node. Credentials come from --creds, or\n" +
		"from Docker's configuration ($DOCKER_CONFIG/config.json or ~/.docker/config.json). Without any, the pull is anonymous.\n" +
		"The configuration of registries and their mirrors is that of the cluster, see sampan up --registries."
	cmd.Example = "  sampan image pull nginx:1.27\n  sampan image pull registry.example.com/shop/web:v2 --creds=@credentials.txt"
	cmd.Flags().StringVar(&f.creds, "creds", "", "credentials for the registry: USER:PASSWORD, or @FILE with them")
	cmd.Flags().StringVar(&f.platform, "platform", "", "platform of the image: OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT (default: that of this machine)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait for all pulls; 0 means no limit")
	return cmd
}

// pull pulls one image, with a bar on a terminal and lines otherwise. Runtimes that are not Sampan's report no progress.
func (i *images) pull(ctx context.Context, conn *grpc.ClientConn, image string, f pullFlags) error {
	user, password, err := f.credentials(image)
	if err != nil {
		return err
	}
	stream, err := api.NewNodeClient(conn).Pull(ctx, &api.PullRequest{Image: image, Platform: f.platform, Username: user, Password: password})
	if err != nil {
		return err
	}
	show := i.newPullView(image)
	defer show.close()
	for {
		res, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case status.Code(err) == codes.Unimplemented:
			if f.platform != "" {
				return err
			}
			auth := &runtimeapi.AuthConfig{Username: user, Password: password}
			if user == "" {
				auth = nil
			}
			_, err := runtimeapi.NewImageServiceClient(conn).PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}, Auth: auth})
			return err
		case err != nil:
			return err
		}
		show.show(res)
	}
}

// credentials returns the user and the password for an image; both are empty if there are none.
func (f pullFlags) credentials(image string) (user, password string, err error) {
	text := f.creds
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", "", fmt.Errorf("--creds: %w", err)
		}
		text = strings.TrimSpace(string(data))
	}
	if text != "" {
		user, password, ok := strings.Cut(text, ":")
		if !ok || user == "" {
			return "", "", errors.New("--creds: must be USER:PASSWORD or @FILE")
		}
		return user, password, nil
	}
	ref, err := name.ParseReference(image, name.WeakValidation)
	if err != nil {
		return "", "", nil // the runtime reports its fault
	}
	registry := ref.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	for _, c := range credentials.FromFiles(dockerConfigs()).Lookup(registry + "/" + ref.Context().RepositoryStr()) {
		return c.Username, c.Password, nil
	}
	return "", "", nil
}

// dockerConfigs returns where the configuration of Docker may be.
func dockerConfigs() []string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return []string{filepath.Join(dir, "config.json")}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	return []string{filepath.Join(home, ".docker", "config.json")}
}

// A pullView shows the progress of one pull.
type pullView struct {
	image  string
	out    io.Writer
	screen *progress.Screen // nil: lines
	width  func() int
	told   int64 // tenths of the bytes that lines have reported
}

func (i *images) newPullView(image string) *pullView {
	v := &pullView{image: terminal.Line(image), out: i.Err, told: -1}
	if f, is := terminal.File(i.Err); is {
		v.screen = progress.NewScreen(f)
		v.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				width = 80 // what terminals usually have
			}
			return width
		}
	}
	return v
}

func (v *pullView) close() {
	if v.screen != nil {
		_ = v.screen.Close(v.width())
	}
}

func (v *pullView) show(p *api.PullResponse) {
	if v.screen != nil {
		width := v.width()
		_ = v.screen.Draw([]string{bar(v.image, p, width-1)}, width)
		return
	}
	const parts = 10
	if p.GetBytes() == 0 || p.GetId() != "" {
		return
	}
	if now := p.GetFetched() * parts / p.GetBytes(); now > v.told {
		v.told = now
		_, _ = fmt.Fprintf(v.out, "%s: %s\n", v.image, summary(p))
	}
}

// summary says how far a pull is.
func summary(p *api.PullResponse) string {
	if p.GetBytes() == 0 {
		return "resolving"
	}
	return fmt.Sprintf("%s of %s, %d of %d layers", size(uint64(max(0, p.GetFetched()))), size(uint64(p.GetBytes())), p.GetUnpacked(), p.GetLayers())
}

// bar returns a line of at most width characters: the image, a bar and the numbers.
func bar(image string, p *api.PullResponse, width int) string {
	text := summary(p)
	const narrowest, brackets = 10, 4
	room := width - len([]rune(image)) - len(text) - brackets
	if p.GetBytes() == 0 || room < narrowest {
		line := []rune(image + " " + text)
		return string(line[:max(0, min(len(line), width))])
	}
	full := int(int64(room) * min(p.GetFetched(), p.GetBytes()) / p.GetBytes())
	return image + " [" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + text
}
