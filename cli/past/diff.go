package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/changes"
)

type diff struct {
	*session.Globals
	in       session.Input
	from, to string
	secrets  bool
}

// Diff returns the verb diff.
func Diff(g *session.Globals) *cobra.Command {
	d := &diff{Globals: g}
	d.in.Lazy = true
	cmd := &cobra.Command{
		Use:   "diff TYPE/NAME… --from=MOMENT [--to=MOMENT]",
		Short: "Show the fields of objects that differ between two moments",
		Long: "Show the fields of objects that differ between two moments, or between one and now. Values of Secrets are masked. The exit code\n" +
			"is 1 if there are differences, and larger after an error, as of kubectl diff, which compares files with the cluster.\n\n" +
			"The cluster has to keep its history: sampan up --history=24h.",
		Example: "  sampan diff deployment/web --from=10m\n  sampan diff configmap/app --from=2026-11-29T04:00:00Z --to=2026-11-29T05:00:00Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || d.from == "" {
				return exit.Usage(cmd.CommandPath(), errors.New("name objects as TYPE/NAME, and the earlier moment with --from: "+momentHelp))
			}
			err := d.run(cmd.Context(), args)
			if differs := (*exit.Error)(nil); err != nil && !errors.As(err, &differs) && exit.Code(err) == exit.Wrong {
				err = exit.With(exit.Failed, err) // 1 says that there are differences
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.from, "from", "", "the earlier moment: "+momentHelp)
	f.StringVar(&d.to, "to", "", "the later moment (default: now)")
	f.BoolVar(&d.secrets, "show-secrets", false, "show the values of Secrets")
	return cmd
}

func (d *diff) run(ctx context.Context, args []string) error {
	s, err := d.Connect()
	if err != nil {
		return err
	}
	infos, err := s.Infos(ctx, d.in, args)
	if err != nil {
		return err
	}
	differ := false
	for _, i := range infos {
		if i.Name == "" {
			return fmt.Errorf("%s: name the objects, as TYPE/NAME", i.Mapping.Resource)
		}
		before, err := d.object(ctx, s, i, d.from)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		after, err := d.object(ctx, s, i, d.to)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		if before == nil && after == nil {
			return fmt.Errorf("%w at --from and --to", apierrors.NewNotFound(i.Mapping.GroupResource(), i.Name))
		}
		differ = d.show(i, before, after) || differ
	}
	if differ {
		return exit.With(exit.Wrong, nil)
	}
	return nil
}

// object returns an object as it was at a moment, "" being now; nil if it did not exist.
func (d *diff) object(ctx context.Context, s *session.Session, i resource.Info, at string) (map[string]any, error) {
	query := url.Values{}
	if at != "" {
		query.Set("at", at)
	}
	resp, err := s.Do(ctx, client.RawRequest{Path: i.Mapping.Path(i.Namespace, i.Name), Query: query, Accept: "application/json"})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if at != "" && resp.Header.Get(changes.AtHeader) == "" {
		return nil, errors.New("the server does not know earlier states of these objects, as clusters of `sampan up --history=24h` do")
	}
	decoder := json.NewDecoder(resp.Body)
	decoder.UseNumber()
	var obj map[string]any
	err = decoder.Decode(&obj)
	return obj, err
}

// show prints the differences and reports whether there are any.
func (d *diff) show(i resource.Info, before, after map[string]any) bool {
	if i.Mapping.Group == "" && i.Mapping.Resource == "secrets" && !d.secrets {
		before, after = changes.Mask(before, after)
	}
	fields, more := changes.Fields(before, after)
	var b bytes.Buffer
	switch {
	case before == nil:
		fmt.Fprintf(&b, "%s did not exist at --from\n", i)
	case after == nil:
		fmt.Fprintf(&b, "%s does not exist at --to\n", i)
	case len(fields) == 0:
		return false
	default:
		fmt.Fprintf(&b, "%s\n", i)
		writeFields(&b, fields, more)
	}
	_, _ = d.Out.Write(b.Bytes())
	return true
}
