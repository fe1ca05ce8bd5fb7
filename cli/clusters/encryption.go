package clusters

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func encryptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "encryption",
		Short: "Manage the keys with which Secrets are encrypted on disk",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "rotate-key",
		Short: "Encrypt Secrets on disk with a new key",
		Long: "Add a new key to the file pki/encryption.yaml in the data directory. A running cluster uses it at once and encrypts the\n" +
			"records on disk again in the background; a stopped one does so at its next start. Earlier keys stay in the file until\n" +
			"a start finds that no record needs them. Then they move to pki/encryption-former.yaml, for earlier snapshots.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, _, running, err := found(cmd)
			if err != nil {
				return err
			}
			hintOther(cmd, p)
			name, err := p.RotateEncryptionKey(time.Now())
			if err != nil {
				return err
			}
			next := "its next start encrypts existing records with it"
			if running {
				next = "it encrypts existing records with it now"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s has the new key %s; %s. Earlier snapshots still need the earlier key, which is kept\n", p.Name, name, next)
			return err
		},
	})
	return cmd
}
