package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/join"
	"github.com/sampan-io/sampan/cluster/pki"
)

// What Kubernetes and kubeadm call these things.
const (
	secretType   = "bootstrap.kubernetes.io/token" // a type
	secretPrefix = "bootstrap-token-"              // a name
	nodesGroup   = "system:bootstrappers:kubeadm:default-node-token"
	usagePrefix  = "usage-bootstrap-"
)

// defaultTTL is kubeadm's.
const defaultTTL = 24 * time.Hour

// Command returns the verb token.
func Command(g *session.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete the tokens with which machines join a cluster",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(createCommand(g), listCommand(g), deleteCommand(g))
	return cmd
}

// connect returns a client.
func connect(g *session.Globals) (client.Interface, error) {
	s, err := g.Connect()
	if err != nil {
		return nil, err
	}
	return s.Typed()
}

func createCommand(g *session.Globals) *cobra.Command {
	var (
		ttl         time.Duration
		description string
		whole       bool
	)
	cmd := &cobra.Command{
		Use:     "create [TOKEN]",
		Short:   "Create a token and print it",
		Long:    "Create a bootstrap token, by default with a random value, and print it. It is a Secret of kube-system, as kubeadm makes it.",
		Example: "  sampan token create --print-join-command\n  sampan token create --ttl=1h --description='for node b'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < 0 {
				return exit.Usage("sampan token create", fmt.Errorf("--ttl must be >= 0, got %v", ttl))
			}
			token := join.NewToken()
			if len(args) > 0 {
				var err error
				if token, err = join.ParseToken(args[0]); err != nil {
					return exit.Usage("sampan token create", err)
				}
			}
			c, err := connect(g)
			if err != nil {
				return err
			}
			line := token.String()
			if whole { // before the token is there: without an address of the cluster it is of no use
				if line, err = joinCommand(cmd.Context(), c, token); err != nil {
					return err
				}
			}
			_, err = client.Secrets.Create(cmd.Context(), c, secret(token, ttl, description, time.Now()))
			if apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("a token with id %q already exists", token.ID)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Out, line)
			return err
		},
	}
	f := cmd.Flags()
	f.DurationVar(&ttl, "ttl", defaultTTL, "time after which the token is deleted; 0 means never")
	f.StringVar(&description, "description", "", "how the token is used, for people")
	f.BoolVar(&whole, "print-join-command", false, "print the whole command that a machine joins with")
	return cmd
}

// secret is the Secret of a token for nodes.
func secret(token join.Token, ttl time.Duration, description string, now time.Time) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretPrefix + token.ID},
		Type:       secretType,
		Data: map[string][]byte{
			"token-id": []byte(token.ID), "token-secret": []byte(token.Secret), "auth-extra-groups": []byte(nodesGroup),
			usagePrefix + "authentication": []byte("true"), usagePrefix + "signing": []byte("true"),
		},
	}
	if description != "" {
		s.Data["description"] = []byte(description)
	}
	if ttl > 0 {
		s.Data["expiration"] = []byte(now.Add(ttl).UTC().Format(time.RFC3339))
	}
	return s
}

// joinCommand returns the command line with which a machine joins.
func joinCommand(ctx context.Context, c client.Interface, token join.Token) (string, error) {
	info, err := client.ConfigMaps.Get(ctx, c, metav1.NamespacePublic, join.ClusterInfo)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("machines cannot join this cluster: it has no ConfigMap kube-public/%s; start it with `sampan up --advertise-address=ADDRESS`", join.ClusterInfo)
	}
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load([]byte(info.Data[join.KubeconfigKey]))
	if err == nil && config.Clusters[""] == nil {
		err = errors.New("there is no cluster in it")
	}
	if err != nil {
		return "", fmt.Errorf("the kubeconfig of the ConfigMap kube-public/%s: %w", join.ClusterInfo, err)
	}
	at, err := url.Parse(config.Clusters[""].Server)
	if err != nil {
		return "", err
	}
	ca, err := pki.ParseCertificate(config.Clusters[""].CertificateAuthorityData)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sampan join %s --token=%s --ca-cert-hash=%s", at.Host, token, join.Hash(ca)), nil
}

func deleteCommand(g *session.Globals) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID|TOKEN…", Short: "Delete tokens", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ids []string
			for _, text := range args {
				id, _, whole := strings.Cut(text, ".")
				_, err := join.ParseToken(text)
				if !whole {
					_, err = join.ParseToken(id + ".0123456789abcdef")
				}
				if err != nil {
					return exit.Usage("sampan token delete", fmt.Errorf("%q is neither the id of a token (6 lower-case letters and digits) nor a token", id))
				}
				ids = append(ids, id)
			}
			c, err := connect(g)
			if err != nil {
				return err
			}
			var errs []error
			for _, id := range ids {
				if err := client.Secrets.Delete(cmd.Context(), c, metav1.NamespaceSystem, secretPrefix+id, metav1.DeleteOptions{}); err != nil {
					errs = append(errs, fmt.Errorf("failed to delete bootstrap token %q: %w", id, err))
					continue
				}
				_, _ = fmt.Fprintf(g.Out, "bootstrap token %q deleted\n", id)
			}
			return errors.Join(errs...)
		},
	}
}
