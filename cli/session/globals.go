package session

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/cluster/local"
)

// Streams are the input and output of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer

	// Terminal is the terminal that In reads from; nil if it is none.
	Terminal *os.File

	// Release is called when a wait has been interrupted, so that the next interruption
	// ends the program at once; may be nil.
	Release func()
}

// Globals are the flags that every verb has, and its streams.
type Globals struct {
	Streams
	Version string // of this program

	Name       string // which of the clusters on this machine
	DataDir    string // where it keeps its data; empty means the default for Name
	Kubeconfig string // path; empty means $KUBECONFIG or ~/.kube/config
	Context    string // empty means the kubeconfig's current one
	Namespace  string // empty means the context's, or "default"
	Output     string // as given with -o
	managers   bool   // --show-managed-fields

	server     server
	credential credential

	flags *pflag.FlagSet // those of AddFlags; nil before
	warn  sync.Once      // a missing kubeconfig is reported once

	RequestTimeout time.Duration // 0 means none
	contact        time.Duration // how long the server may take for discovery; 0 means the usual
}

// AddFlags adds the flags to the root of a command tree.
func (g *Globals) AddFlags(f *pflag.FlagSet) {
	g.flags = f
	f.StringVar(&g.Name, "name", local.DefaultName, "name of the cluster on this machine")
	f.StringVar(&g.DataDir, "data-dir", "", "`directory` with the data of the cluster that --name names (default that of its last start, or else /var/lib/sampan/NAME, or ~/.local/share/sampan/NAME without root)")
	f.StringVar(&g.Kubeconfig, "kubeconfig", "", "path of the kubeconfig file (default $KUBECONFIG or ~/.kube/config)")
	f.StringVar(&g.Context, "context", "", "kubeconfig context to use (default that of the cluster that --name names, or else the current one)")
	f.StringVarP(&g.Namespace, "namespace", "n", "", "namespace of the request")
	f.StringVarP(&g.Output, "output", "o", "", "output format: json, yaml, kyaml, name, wide, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…, custom-columns=… or custom-columns-file=…")
	g.server.addFlags(f)
	g.credential.addFlags(f)
	f.DurationVar(&g.RequestTimeout, "request-timeout", 0, "timeout of a single server request; 0 means no limit")
}

// context returns the kubeconfig context that the flags name; empty means the current one.
func (g *Globals) context() string {
	named := g.flags != nil && g.flags.Changed("name")
	if g.Context != "" || !named || g.server.url != "" || g.server.cluster != "" {
		return g.Context
	}
	return local.Profile{Name: g.Name}.Context()
}

func (g *Globals) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = g.Kubeconfig
	rules.Warner = func(err error) { // the configuration is loaded more than once
		g.warn.Do(func() { _, _ = fmt.Fprintln(g.Err, "warning:", err) })
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: g.context()}
	overrides.Context.Namespace = g.Namespace
	g.server.override(overrides)
	g.credential.override(overrides)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// Config returns the server and the user that the kubeconfig and the flags name.
func (g *Globals) Config() (*rest.Config, error) {
	if g.RequestTimeout < 0 {
		return nil, fmt.Errorf("--request-timeout=%v: want 0 or more", g.RequestTimeout)
	}
	if err := errors.Join(g.server.check(), g.credential.check()); err != nil {
		return nil, err
	}
	if err := g.checkContext(); err != nil {
		return nil, err
	}
	cfg, err := g.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured: the kubeconfig is missing or empty. " +
			"Start a cluster with 'sampan up', or pass a file with --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.Timeout = g.RequestTimeout
	cfg.UserAgent = "sampan/" + g.Version
	return cfg, nil
}

// checkContext reports the kubeconfig's missing part to choose a server. One that has
// nothing in it is no error: a pod has a server without one.
func (g *Globals) checkContext() error {
	raw, err := g.loader().RawConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the kubeconfig %q does not exist; pass an existing file with --kubeconfig; 'sampan kubeconfig' prints the kubeconfig of a cluster on this machine", g.Kubeconfig)
	case err != nil:
		return fmt.Errorf("kubeconfig: %w", err)
	}
	name := cmp.Or(g.context(), raw.CurrentContext)
	if name == "" && len(raw.Contexts) == 0 {
		return nil
	}
	others := "it has none"
	if len(raw.Contexts) > 0 {
		others = "it has " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	}
	chosen := raw.Contexts[name]
	if chosen != nil {
		chosen.Cluster, chosen.AuthInfo = cmp.Or(g.server.cluster, chosen.Cluster), cmp.Or(g.credential.user, chosen.AuthInfo)
	}
	switch {
	case name == "" && (g.server.url != "" || g.server.cluster != ""): // which server is said without a context
		return nil
	case name == "":
		return fmt.Errorf("the kubeconfig has no current context: %s. Pass --context, or another file with --kubeconfig", others)
	case chosen == nil:
		return fmt.Errorf("the kubeconfig has no context %q: %s. Pass an existing one with --context, or another file with --kubeconfig", name, others)
	case raw.Clusters[chosen.Cluster] == nil:
		return fmt.Errorf("context %q of the kubeconfig refers to cluster %q, which does not exist in it. Pass another --context, or another file with --kubeconfig", name, chosen.Cluster)
	case chosen.AuthInfo != "" && raw.AuthInfos[chosen.AuthInfo] == nil:
		return fmt.Errorf("context %q of the kubeconfig refers to user %q, which does not exist in it. Pass another --context, or another file with --kubeconfig", name, chosen.AuthInfo)
	}
	return nil
}
