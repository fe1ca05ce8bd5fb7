package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/run"
)

func resetCommand() *cobra.Command {
	var (
		from  origin
		file  string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "reset --to=SNAPSHOT",
		Short: "Put the objects of a running cluster back to a snapshot",
		Long: "Delete, create and change the objects of a running cluster, so that they are those of a snapshot, such as between tests. Watches\n" +
			"go on and show the changes. Nodes, Leases, Events and volumes stay, and so do pods and claims that are still there; others of\n" +
			"the snapshot begin again. The snapshot must be of this cluster, or of one that it was made from.",
		Example: "  sampan reset --to=prepared.snapshot",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return errors.New("--to: must be the file of a snapshot, or - for standard input")
			}
			if err := checkKeys(from.keys); err != nil {
				return err
			}
			p, c, err := credentialsOf(cmd)
			if err != nil {
				return err
			}
			if other, differs := otherCurrent(cmd, p); differs {
				if err := confirm(cmd, p, other, "reset"); err != nil {
					return err
				}
			}
			in, end, err := openSnapshot(cmd, file)
			if err != nil {
				return fmt.Errorf("--to: %w", err)
			}
			defer end()
			r, w := io.Pipe()
			var copied error
			g := run.NewGroup(cmd.Context(), 0)
			g.Go(func(ctx context.Context) {
				copied = snapshots.Plain(ctx, w, in, from.restoration(p, nil))
				_ = w.CloseWithError(copied) // a reader gets it
			})
			out, err := snapshots.Put(cmd.Context(), c, r, force)
			_ = r.CloseWithError(io.ErrClosedPipe) // the copy ends
			g.Wait()
			if copied != nil && !errors.Is(copied, io.ErrClosedPipe) {
				return fmt.Errorf("--to: %s: %w; nothing was changed", input(file), copied)
			}
			if err != nil {
				return fmt.Errorf("--to: %s: %w", input(file), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s has the objects of revision %d of %s: %d written, %d deleted\n", p.Name, out.Revision, input(file), out.Written, out.Deleted)
			return err
		},
	}
	from.flags(cmd.Flags())
	cmd.Flags().StringVar(&file, "to", "", "snapshot: a file, or - for standard input")
	cmd.Flags().BoolVar(&force, "force", false, "also take a snapshot of a cluster that this one was not made from")
	return cmd
}

// input returns the name of a file for messages.
func input(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}
