package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/controller/manager"
	"github.com/sampan-io/sampan/controller/standalone"
)

// controllersCommand returns the command controllers, which runs the controllers of a cluster that may not be Sampan's.
func controllersCommand(g *session.Globals) *cobra.Command {
	// Upstream's name is the manager of the fields that controllers write.
	o := standalone.Options{Connect: g.Config, UserAgent: "kube-controller-manager/sampan-" + g.Version}
	var selected []string
	var elect bool
	e := standalone.DefaultElection()
	var log session.Log
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Run only the controllers, for any cluster",
		Long: "Run only Sampan's controllers, against the cluster of the kubeconfig, until it is interrupted. They replace\n" +
			"kube-controller-manager, whose flags these are. Several instances can run, and one of them is active: the one that\n" +
			"holds the Lease kube-system/kube-controller-manager, for which kube-controller-manager competes as well.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = log.To(cmd.ErrOrStderr())
			o.Selection = manager.Selection(selected)
			if o.Election = &e; !elect {
				o.Election = nil
			}
			if len(selected) == 0 {
				return errors.New("--controllers: must not be empty")
			}
			return standalone.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&selected, "controllers", []string{"*"}, "controllers to run: NAME, * for all that are on by default, -NAME for all except that one; bootstrap-signer-controller and token-cleaner-controller are off by default")
	f.BoolVar(&elect, "leader-elect", true, "run the controllers only while holding the Lease")
	f.StringVar(&e.Namespace, "leader-elect-resource-namespace", e.Namespace, "namespace of the Lease")
	f.StringVar(&e.Name, "leader-elect-resource-name", e.Name, "name of the Lease")
	f.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "time without a renewal after which another instance takes the Lease")
	f.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "time without a renewal after which the leader ends")
	f.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "time between two attempts to take or renew the Lease")
	f.BoolVar(&o.AccountCredentials, "use-service-account-credentials", false, "run each controller as its service account of kube-system, with the roles that Kubernetes has for it")
	f.StringVar(&o.ServiceAccountKeyFile, "service-account-private-key-file", "", "file with the private key, RSA or ECDSA in PEM, that signs service account tokens in Secrets; without it serviceaccount-token-controller does not run")
	f.StringVar(&o.RootCAFile, "root-ca-file", "", "file with the certificates in PEM by which pods trust the API server (default: the authority in the kubeconfig)")
	f.StringVar(&o.ClusterSigningCertFile, "cluster-signing-cert-file", "", "file with the certificate in PEM of the authority that signs CertificateSigningRequests; without it certificatesigningrequest-signing-controller does not run")
	f.StringVar(&o.ClusterSigningKeyFile, "cluster-signing-key-file", "", "file with the private key, RSA or ECDSA in PEM, of --cluster-signing-cert-file")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "address on which to serve /metrics, /livez and /readyz (default: not served)")
	f.StringVar(&o.CertFile, "tls-cert-file", "", "TLS certificate for --metrics-bind-address; without it the address must be a loopback address")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "TLS private key for --tls-cert-file")
	log.AddFlag(f)
	return cmd
}
