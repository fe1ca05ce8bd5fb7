package manager

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/attach"
	"github.com/sampan-io/sampan/controller/autoscale"
	"github.com/sampan-io/sampan/controller/balancer"
	"github.com/sampan-io/sampan/controller/bootstraptokens"
	"github.com/sampan-io/sampan/controller/certificates"
	"github.com/sampan-io/sampan/controller/cron"
	"github.com/sampan-io/sampan/controller/devices"
	"github.com/sampan-io/sampan/controller/disruption"
	"github.com/sampan-io/sampan/controller/endpoints"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/controller/migration"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/controller/nodeipam"
	"github.com/sampan-io/sampan/controller/nodelifecycle"
	"github.com/sampan-io/sampan/controller/quota"
	"github.com/sampan-io/sampan/controller/roles"
	"github.com/sampan-io/sampan/controller/servicecidrs"
	"github.com/sampan-io/sampan/controller/sets"
	"github.com/sampan-io/sampan/controller/tokens"
	"github.com/sampan-io/sampan/controller/volumes"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/run"
)

// NodeLifecycle is the name of the controller that taints nodes and removes the taints.
const NodeLifecycle = "node-lifecycle-controller"

// Names of the controllers that * does not select upstream.
const (
	BootstrapSigner = "bootstrap-signer-controller"
	TokenCleaner    = "token-cleaner-controller"
)

// groups returns the table of all controllers.
func groups() []group {
	return []group{
		{
			parts: []part{
				{name: "deployment-controller", alias: "deployment", loops: []string{"deployment-controller"}},
				{name: "replicaset-controller", alias: "replicaset", loops: []string{"replicaset-controller"}},
				{name: "replicationcontroller-controller", alias: "replicationcontroller", loops: []string{"replication-controller"}},
				{name: "job-controller", alias: "job", loops: []string{"job-controller", "job-orphans"}},
				{name: "ttl-after-finished-controller", alias: "ttl-after-finished", loops: []string{"ttl-after-finished-controller"}},
			},
			tasks: with(workload.Tasks),
		},
		{
			parts: []part{{name: "cronjob-controller", alias: "cronjob", loops: []string{"cronjob-controller"}}},
			tasks: with(cron.Tasks),
		},
		{
			parts: []part{{name: "horizontal-pod-autoscaler-controller", alias: "horizontalpodautoscaling", loops: []string{"horizontal-pod-autoscaler-controller"}}},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return autoscale.Tasks(autoscale.Options{Config: o.For(Autoscaler), Raw: o.Raw})
			},
		},
		{
			parts: []part{
				{name: "daemonset-controller", alias: "daemonset", loops: []string{"daemonset-controller"}},
				{name: "statefulset-controller", alias: "statefulset", loops: []string{"statefulset-controller"}},
			},
			tasks: with(sets.Tasks),
		},
		{
			parts: []part{
				{name: "ephemeral-volume-controller", alias: "ephemeral-volume", loops: []string{"ephemeral-volume-controller"}},
				{name: "persistentvolume-binder-controller", alias: "persistentvolume-binder", loops: []string{"persistentvolume-binder-controller"}},
				{name: "persistentvolume-protection-controller", alias: "pv-protection", loops: []string{"persistentvolume-protection-controller"}},
				{name: "persistentvolumeclaim-protection-controller", alias: "pvc-protection", loops: []string{"persistentvolumeclaim-protection-controller"}},
				{name: "volumeattributesclass-protection-controller", alias: "volumeattributesclass-protection-controller", loops: []string{"volumeattributesclass-protection-controller"}},
			},
			tasks: with(volumes.Tasks),
		},
		{
			parts: []part{
				{name: "persistentvolume-attach-detach-controller", alias: "attachdetach", loops: []string{"persistentvolume-attach-detach-controller"}},
				{name: "persistentvolume-expander-controller", alias: "persistentvolume-expander", loops: []string{"persistentvolume-expander-controller"}},
			},
			tasks: with(attach.Tasks),
		},
		{
			parts: []part{
				{
					name: "device-taint-eviction-controller", alias: "device-taint-eviction-controller",
					loops: []string{"device-taint-eviction-controller", "device-taint-rule-status"}, needs: deviceKinds(),
				},
				{
					name: "resourceclaim-controller", alias: "resource-claim-controller",
					loops: []string{"resourceclaim-controller", "resourceclaim-reservations"}, needs: deviceKinds(),
				},
			},
			tasks: with(devices.Tasks),
		},
		{
			parts: []part{{name: "disruption-controller", alias: "disruption", loops: []string{"disruption-controller"}}},
			tasks: with(disruption.Tasks),
		},
		{
			parts: []part{{
				name: "service-lb-controller", alias: "service", loops: []string{"service-lb-controller"},
				lacks: without("addresses for load balancers are not configured", func(o Options) bool { return o.Pool != nil }),
			}},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return balancer.Tasks(balancer.Options{Config: o.Config, Pool: *o.Pool})
			},
		},
		{
			// This one writes Endpoints and mirrors them, too.
			parts: []part{{name: "endpointslice-controller", alias: "endpointslice", loops: []string{"endpoints"}}},
			tasks: with(endpoints.Tasks),
		},
		{
			parts: []part{{
				name: "service-cidr-controller", alias: "service-cidr-controller", loops: []string{"service-cidr-controller"},
				needs: []schema.GroupVersionResource{client.ServiceCIDRs.GroupVersionResource, client.IPAddresses.GroupVersionResource},
			}},
			tasks: with(servicecidrs.Tasks),
		},
		{
			parts: []part{{
				name: "storage-version-migrator-controller", alias: "svm", loops: []string{"storage-version-migrator-controller"},
				needs: []schema.GroupVersionResource{client.StorageVersionMigrations.GroupVersionResource},
			}},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return migration.Tasks(migration.Options{Config: o.Config, Resources: o.Resources, Served: o.customServed()})
			},
		},
		{
			parts: []part{
				{name: "namespace-controller", alias: "namespace", loops: []string{"namespaces"}},
				{
					name: "root-ca-certificate-publisher-controller", alias: "root-ca-cert-publisher", loops: []string{"root-certificates"},
					lacks: noRoots(),
				},
				{name: "serviceaccount-controller", alias: "serviceaccount", loops: []string{"accounts"}},
			},
			custom: true,
			tasks: func(o Options, custom *cache.Dynamic) []run.Task {
				return namespaces.Tasks(namespaces.Options{Config: o.Config, Resources: o.Resources, Custom: custom, Others: o.Others, Roots: o.Roots})
			},
		},
		{
			parts: []part{{name: "clusterrole-aggregation-controller", alias: "clusterrole-aggregation", loops: []string{"clusterrole-aggregation-controller"}}},
			tasks: with(roles.Tasks),
		},
		{
			parts: []part{
				{name: "legacy-serviceaccount-token-cleaner-controller", alias: "legacy-service-account-token-cleaner", loops: []string{tokens.CleanerLoop}},
				{
					name: "serviceaccount-token-controller", alias: "serviceaccount-token", loops: []string{tokens.TokensLoop},
					lacks: without("a private key is not configured", func(o Options) bool { return o.Signer != nil }),
				},
			},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return tokens.Tasks(tokens.Options{
					Config: o.Config, Cleaner: o.For("legacy-service-account-token-cleaner").Client, Signer: o.Signer, Roots: o.Roots,
				})
			},
		},
		{
			parts: []part{
				{name: BootstrapSigner, alias: "bootstrapsigner", loops: []string{bootstraptokens.SignerLoop}, onRequest: true},
				{name: TokenCleaner, alias: "tokencleaner", loops: []string{bootstraptokens.CleanerLoop}, onRequest: true},
			},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return bootstraptokens.Tasks(bootstraptokens.Options{Config: o.Config, Cleaner: o.For("token-cleaner").Client, Signer: o.For("bootstrap-signer").Client})
			},
		},
		{
			parts:  []part{{name: "garbage-collector-controller", alias: "garbagecollector", loops: []string{"garbage-collector", "garbage-collector-others"}}},
			custom: true,
			tasks: func(o Options, custom *cache.Dynamic) []run.Task {
				return garbage.Tasks(garbage.Options{Config: o.Config, Resources: o.Resources, Custom: custom})
			},
		},
		{
			parts: []part{{
				name: "node-ipam-controller", alias: "nodeipam", loops: []string{nodeipam.Loop},
				lacks: without("networks for pods are not configured", func(o Options) bool { return o.PodNetworks != nil }),
			}},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return nodeipam.Tasks(nodeipam.Options{Config: o.Config, Pool: *o.PodNetworks})
			},
		},
		{
			parts: []part{
				{name: NodeLifecycle, alias: "nodelifecycle", loops: []string{"nodes"}},
				{name: "pod-garbage-collector-controller", alias: "podgc", loops: []string{"finished-pods"}},
				{name: "ttl-controller", alias: "ttl", loops: []string{"ttl-controller"}},
			},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				return nodelifecycle.Tasks(nodelifecycle.Options{Config: o.Config})
			},
		},
		{
			parts:  []part{{name: "resourcequota-controller", alias: "resourcequota", loops: []string{"resourcequota-controller"}}},
			custom: true,
			tasks: func(o Options, custom *cache.Dynamic) []run.Task {
				return quota.Tasks(quota.Options{Config: o.Config, Resources: o.Resources, Custom: custom})
			},
		},
		{
			parts: []part{
				{name: "certificatesigningrequest-approving-controller", alias: "csrapproving", loops: []string{"certificatesigningrequest-approving-controller"}},
				{ // upstream leaves these requests to administrators
					name: "certificatesigningrequest-serving-approving-controller", alias: "csrservingapproving",
					loops: []string{"certificatesigningrequest-serving-approving-controller"},
					lacks: without("the names and addresses of the cluster's servers are not configured", func(o Options) bool { return o.Servers != nil }),
				},
				{name: "certificatesigningrequest-cleaner-controller", alias: "csrcleaner", loops: []string{"certificatesigningrequest-cleaner-controller"}},
				{
					name: "certificatesigningrequest-signing-controller", alias: "csrsigning", loops: []string{"certificatesigningrequest-signing-controller"},
					lacks: without("a certificate and a key to sign with are not configured", func(o Options) bool { return o.Authority != nil }),
				},
				{
					name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", alias: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
					loops: []string{"kube-apiserver-serving-clustertrustbundle-publisher-controller"}, lacks: noRoots(),
				},
				{
					name: "podcertificaterequest-cleaner-controller", alias: "podcertificaterequest-cleaner-controller",
					loops: []string{"podcertificaterequest-cleaner-controller"},
				},
			},
			tasks: func(o Options, _ *cache.Dynamic) []run.Task {
				c := certificates.Options{Config: o.Config, Authority: o.Authority, RootCA: o.Roots.CertificatePEM()}
				if o.Servers != nil {
					c.Servers = *o.Servers
				}
				return certificates.Tasks(c)
			},
		},
	}
}

// Service accounts of controllers that need more than the client of one server.
const (
	Autoscaler = "horizontal-pod-autoscaler"
	Collector  = garbage.Account
)

// customServed returns the source of custom resources, or nil.
func (o Options) customServed() cache.Served {
	if len(o.Served) == 0 {
		return nil
	}
	return o.Served[0]
}

// with returns the tasks of a package that needs nothing else than the common configuration.
func with(tasks func(controller.Config) []run.Task) func(Options, *cache.Dynamic) []run.Task {
	return func(o Options, _ *cache.Dynamic) []run.Task { return tasks(o.Config) }
}

// without returns a function that explains a controller's missing option, unless the options have it.
func without(why string, has func(Options) bool) func(Options) string {
	return func(o Options) string {
		if has(o) {
			return ""
		}
		return why
	}
}

func noRoots() func(Options) string {
	return without("the authority of the API server is not configured", func(o Options) bool { return len(o.Roots.CertificatePEM()) > 0 })
}

// deviceKinds are the kinds without which no controller of devices works.
func deviceKinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		client.ResourceClaims.GroupVersionResource, client.ResourceClaimTemplates.GroupVersionResource,
		client.ResourceSlices.GroupVersionResource, client.DeviceTaintRules.GroupVersionResource,
	}
}
