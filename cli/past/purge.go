package past

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/changes"
)

func purgeCommand(g *session.Globals) *cobra.Command {
	in := session.Input{Lazy: true}
	all := false
	cmd := &cobra.Command{
		Use:   "purge {TYPE/NAME… | --all}",
		Short: "Remove the earlier values of objects from the history",
		Long: "Remove the earlier values of objects, such as of a Secret that should not have been written, from the disk. The times and users\n" +
			"of the changes stay. Objects that exist keep their present value. Only administrators may do this.",
		Example: "  sampan history purge secret/db -n shop\n  sampan history purge --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return exit.Usage(cmd.CommandPath(), errors.New("name objects as TYPE/NAME, or pass --all"))
			}
			s, err := g.Connect()
			if err != nil {
				return err
			}
			if all {
				if err := purge(cmd.Context(), s, url.Values{"all": {"true"}}); err != nil {
					return err
				}
				_, err := fmt.Fprintln(g.Out, "earlier values of all objects purged")
				return err
			}
			infos, err := s.Infos(cmd.Context(), in, args)
			if err != nil {
				return err
			}
			for _, i := range infos {
				if i.Name == "" {
					return fmt.Errorf("%s: name the objects, or pass --all", i.Mapping.Resource)
				}
				query := url.Values{}
				scope(query, i)
				if err := purge(cmd.Context(), s, query); err != nil {
					return err
				}
				where := ""
				if i.Namespace != "" {
					where = " in namespace " + i.Namespace
				}
				_, _ = fmt.Fprintf(g.Out, "earlier values of %s%s purged\n", i, where)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove the earlier values of all objects")
	return cmd
}

func purge(ctx context.Context, s *session.Session, query url.Values) error {
	resp, err := s.Do(ctx, client.RawRequest{Method: http.MethodDelete, Path: changes.Path, Query: query, Endless: true})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
