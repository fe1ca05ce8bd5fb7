package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/internal/filewatch"
)

// Names of the keys and authorities that can be rotated.
const (
	tokenKey     = "token-key"
	clusterCA    = "ca"
	frontProxyCA = "front-proxy-ca"
)

func certsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show and rotate the keys and certificates of a cluster on this machine",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(certsCheckCommand(), certsRotateCommand())
	return cmd
}

func certsCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "List the kept keys and certificates, and when they expire",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, dir, err := keysOf(cmd)
			if err != nil {
				return err
			}
			return writeCertificates(cmd.OutOrStdout(), p, dir, time.Now())
		},
	}
}

// keysOf returns the cluster and the directory of its keys.
func keysOf(cmd *cobra.Command) (local.Profile, string, error) {
	p, _, _, err := found(cmd)
	if err != nil {
		return p, "", err
	}
	dir := filepath.Join(p.DataDir, "pki")
	if _, err := os.Stat(dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("cluster %s has no keys yet; start it with %s", p.Name, hint(cmd, "up"))
		}
		return p, "", err
	}
	return p, dir, nil
}

func writeCertificates(out io.Writer, p local.Profile, dir string, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tUSE\tEXPIRES\tRESIDUAL TIME")
	for _, name := range []string{clusterCA, frontProxyCA} {
		a, err := openAuthority(dir, name, now)
		if err != nil {
			return err
		}
		for _, c := range a.Certificates() {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, c.Use, c.NotAfter.UTC().Format(time.RFC3339), days(c.NotAfter.Sub(now)))
		}
	}
	keys, err := pki.OpenTokenKeys(dir)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "%s\tsigns; %d former accepted\tnever\t\n", tokenKey, len(keys.Former))
	if saved, ok := p.SavedCredentials(); ok {
		if c, err := pki.ParseCertificate(saved.Cert); err == nil {
			_, _ = fmt.Fprintf(w, "admin.kubeconfig\trenewed at %s\t%s\t%s\n", pki.Renewable(saved.Cert).UTC().Format(time.DateOnly), c.NotAfter.UTC().Format(time.RFC3339), days(c.NotAfter.Sub(now)))
		}
	}
	return w.Flush()
}

func days(d time.Duration) string { return fmt.Sprintf("%dd", int(d/(24*time.Hour))) }

func openAuthority(dir, name string, now time.Time) (*pki.Authority, error) {
	if name == frontProxyCA {
		return pki.OpenFrontProxy(dir, now)
	}
	return pki.Open(dir, now)
}

func certsRotateCommand() *cobra.Command {
	var activate, drop bool
	cmd := &cobra.Command{
		Use:   "rotate token-key|ca|front-proxy-ca",
		Short: "Replace a key or a certificate authority without a restart",
		Long: "Replace a key or a certificate authority. A running cluster follows within moments, a stopped one at its next start. The\n" +
			"command for ca returns when a running cluster has followed, so that `sampan kubeconfig --merge` merges the new certificates.\n\n" +
			"token-key: a new key signs service account tokens from now on. Tokens of former keys stay valid until they expire, or until\n" +
			"--drop-former makes them all invalid.\n\n" +
			"ca, front-proxy-ca: a new certificate authority is prepared, which is trusted but does not sign yet. When all clients have the\n" +
			"new certificates (kubeconfigs of `sampan kubeconfig`, the ConfigMap kube-root-ca.crt of every namespace), --activate makes it\n" +
			"sign. The former one stays trusted until it expires, or until --drop-former.\n\n" +
			"All this also happens on its own: an authority is prepared two years before it expires and activated one year before,\n" +
			"and the token key is replaced every five years.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(cmd.ValidArgs, args[0]) {
				return fmt.Errorf("want one of %s, got %q", strings.Join(cmd.ValidArgs, ", "), args)
			}
			return nil
		},
		ValidArgs: []string{tokenKey, clusterCA, frontProxyCA},
		RunE: func(cmd *cobra.Command, args []string) error {
			if activate && drop {
				return errors.New("--activate and --drop-former must not be used together")
			}
			if activate && args[0] == tokenKey {
				return errors.New("--activate: is for certificate authorities; a new token key signs at once")
			}
			p, dir, err := keysOf(cmd)
			if err != nil {
				return err
			}
			if err := rotate(cmd, dir, args[0], activate, drop); err != nil || args[0] != clusterCA {
				return err
			}
			return awaitKubeconfig(cmd, p, dir)
		},
	}
	cmd.Flags().BoolVar(&activate, "activate", false, "make the prepared certificate authority sign")
	cmd.Flags().BoolVar(&drop, "drop-former", false, "end the trust in the former keys or certificates; make nothing new")
	return cmd
}

// followLimit is how long a running cluster may take to follow a change of its authority, which is a matter of milliseconds.
const followLimit = 30 * time.Second

// awaitKubeconfig returns when the administrator's kubeconfig of a running cluster has the certificates of the authority as they
// are now, and a client certificate of the one that signs. The API server follows the files of the authority before it writes
// that kubeconfig.
func awaitKubeconfig(cmd *cobra.Command, p local.Profile, dir string) error {
	_, running, err := p.Instance()
	if err != nil || !running {
		return err
	}
	a, err := pki.Open(dir, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), followLimit)
	defer cancel()
	followed := false
	err = filewatch.Follow(ctx, []string{p.Kubeconfig()}, func() {
		saved, ok := p.SavedCredentials()
		if followed = followed || ok && bytes.Equal(saved.CA, a.CertificatePEM()) && a.Signed(saved.Cert); followed {
			cancel()
		}
	})
	if err != nil || followed {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	return fmt.Errorf("the files are changed, but the running cluster %s has not written its kubeconfig within %s: see its log before the next step", p.Name, followLimit)
}

func rotate(cmd *cobra.Command, dir, what string, activate, drop bool) error {
	now := time.Now()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) }
	if what == tokenKey {
		if drop {
			if err := pki.DropFormerTokenKeys(dir); err != nil {
				return err
			}
			say("tokens of former keys are invalid")
			return nil
		}
		if err := pki.RotateTokenKey(dir, now); err != nil {
			return err
		}
		say("a new key signs service account tokens; tokens of former keys stay valid")
		return nil
	}
	a, err := openAuthority(dir, what, now)
	if err != nil {
		return err
	}
	switch {
	case drop:
		if err := a.DropFormer(now); err != nil {
			return err
		}
		say("former certificates of %s are not trusted any more", what)
	case activate:
		if err := a.Activate(now); err != nil {
			return fmt.Errorf("%w; prepare it with %s", err, hint(cmd, "certs rotate "+what))
		}
		say("the new certificate of %s signs; the former one stays trusted", what)
		if what == clusterCA {
			say("kubeconfigs on this machine get a client certificate of the new one by %s", hint(cmd, "kubeconfig --merge"))
			say("when all clients have one, run %s", hint(cmd, "certs rotate "+what+" --drop-former"))
		}
	default:
		if err := a.Prepare(now); err != nil {
			return err
		}
		say("a new certificate of %s is prepared: it is trusted, and does not sign yet", what)
		if what == clusterCA {
			say("kubeconfigs on this machine get it by %s", hint(cmd, "kubeconfig --merge"))
		}
		say("when all clients have it, run %s", hint(cmd, "certs rotate "+what+" --activate"))
	}
	return nil
}
