package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/schema"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/local"
)

// Globals are the flags that every verb has, and the streams.
type Globals struct {
	Name       string // which of the clusters on this machine
	DataDir    string // where it keeps its data; empty means the default for Name
	Kubeconfig string // path; empty means $KUBECONFIG or ~/.kube/config
	Context    string // empty means the kubeconfig's current one
	Namespace  string // empty means the context's, or "default"
	Output     string // as given with -o

	RequestTimeout time.Duration // 0 means none

	In       io.Reader
	Out, Err io.Writer
	Version  string

	release func() // see Options.Release; may be nil
}

func (g *Globals) flags(f *pflag.FlagSet) {
	f.StringVar(&g.Name, "name", local.DefaultName, "name of the cluster on this machine")
	f.StringVar(&g.DataDir, "data-dir", "", "directory of that cluster's data")
	f.StringVar(&g.Kubeconfig, "kubeconfig", "", "path of the kubeconfig file (default $KUBECONFIG or ~/.kube/config)")
	f.StringVar(&g.Context, "context", "", "context of the kubeconfig to use")
	f.StringVarP(&g.Namespace, "namespace", "n", "", "namespace to work in")
	f.StringVarP(&g.Output, "output", "o", "", "how to print: json, yaml, name, wide, jsonpath=…, custom-columns=…")
	f.DurationVar(&g.RequestTimeout, "request-timeout", 0, "how long one request to the server may take; 0 means any time")
}

func (g *Globals) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = g.Kubeconfig
	rules.Warner = func(err error) { _, _ = fmt.Fprintln(g.Err, "warning:", err) }
	overrides := &clientcmd.ConfigOverrides{CurrentContext: g.Context}
	overrides.Context.Namespace = g.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// Config returns the server and the user that the kubeconfig and the flags name.
func (g *Globals) Config() (*rest.Config, error) {
	if err := g.checkContext(); err != nil {
		return nil, err
	}
	cfg, err := g.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no cluster to talk to: the kubeconfig is missing or empty. " +
			"Bring one up with 'sampan up', or name a file with --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.Timeout = g.RequestTimeout
	cfg.UserAgent = "sampan/" + g.Version
	return cfg, nil
}

// checkContext says what the kubeconfig lacks to choose a server. One that has
// nothing in it is no error: a pod has a server without one.
func (g *Globals) checkContext() error {
	raw, err := g.loader().RawConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the kubeconfig %q does not exist; --kubeconfig names the file, 'sampan kubeconfig' prints that of a cluster on this machine", g.Kubeconfig)
	case err != nil:
		return fmt.Errorf("kubeconfig: %w", err)
	}
	name := cmp.Or(g.Context, raw.CurrentContext)
	if name == "" && len(raw.Contexts) == 0 {
		return nil
	}
	others := "it has none"
	if len(raw.Contexts) > 0 {
		others = "it has " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	}
	chosen := raw.Contexts[name]
	switch {
	case name == "":
		return fmt.Errorf("the kubeconfig has no current context: %s. Choose with --context, or name another file with --kubeconfig", others)
	case chosen == nil:
		return fmt.Errorf("the kubeconfig has no context %q: %s. Choose with --context, or name another file with --kubeconfig", name, others)
	case raw.Clusters[chosen.Cluster] == nil:
		return fmt.Errorf("the context %q of the kubeconfig wants a cluster %q, which is not in it: choose another context with --context, or another file with --kubeconfig", name, chosen.Cluster)
	case chosen.AuthInfo != "" && raw.AuthInfos[chosen.AuthInfo] == nil:
		return fmt.Errorf("the context %q of the kubeconfig wants a user %q, who is not in it: choose another context with --context, or another file with --kubeconfig", name, chosen.AuthInfo)
	}
	return nil
}

// A session is a connection for one verb.
type session struct {
	*Globals
	*client.REST // objects come out unstructured
	warn         func(text string)
	mapper       *resource.Mapper
	schemas      *schema.Schemas // nil until the first object is checked
	namespace    string
	enforced     bool // the namespace was chosen with a flag
}

// warningCode is that of the warnings that are for people (RFC 7234, 5.5.7).
const warningCode = 299

// connect makes no request yet.
func (g *Globals) connect() (*session, error) {
	cfg, err := g.Config()
	if err != nil {
		return nil, err
	}
	// What a server warns of is said once, however many requests it concerns.
	warnings := rest.NewWarningWriter(g.Err, rest.WarningWriterOptions{Deduplicate: true})
	warn := func(text string) { warnings.HandleWarningHeader(warningCode, "-", text) }
	c, err := client.NewREST(cfg, client.RESTOptions{Dynamic: true, Warn: warn})
	if err != nil {
		return nil, err
	}
	s := &session{Globals: g, REST: c, warn: warn, mapper: resource.NewMapper(c)}
	if s.namespace, s.enforced, err = g.loader().Namespace(); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return s, nil
}

// typed returns a client whose built-in objects have their Go types.
func (s *session) typed() (*client.REST, error) {
	return client.NewREST(s.REST.Config(), client.RESTOptions{Warn: s.warn})
}

// input is what flags and arguments say about objects.
type input struct {
	files         []string
	recursive     bool
	kustomize     string
	labels        string
	fields        string
	all           bool
	allNamespaces bool
	lazy          bool
}

func (in *input) fileFlag(f *pflag.FlagSet) {
	f.VarP((*fileNames)(&in.files), "filename", "f", "file, directory, pattern or address with objects, YAML or JSON; - is the standard input")
	f.BoolVarP(&in.recursive, "recursive", "R", false, "read the directories in directories given with -f, too")
	f.StringVarP(&in.kustomize, "kustomize", "k", "", "directory of a kustomization; cannot be used together with -f or -R")
}

// fileNames is the value of a flag that may be given several times, or once with names
// separated by commas.
type fileNames []string

func (f *fileNames) String() string { return strings.Join(*f, ",") }
func (f *fileNames) Type() string   { return "strings" }

// Set implements pflag.Value.
func (f *fileNames) Set(text string) error {
	*f = append(*f, strings.Split(text, ",")...)
	return nil
}

// given reports whether objects were given with -f or -k.
func (in *input) given() bool { return len(in.files) > 0 || in.kustomize != "" }

func (in *input) selectorFlags(f *pflag.FlagSet) {
	f.StringVarP(&in.labels, "selector", "l", "", "label selector (a=b, a!=b, a in (b,c), a)")
	f.StringVar(&in.fields, "field-selector", "", "field selector (metadata.name=x, status.phase!=Running)")
	f.BoolVarP(&in.allNamespaces, "all-namespaces", "A", false, "look in all namespaces")
}

// infos collects what was meant. Errors of single documents are joined; the
// objects of the others are returned beside them.
func (s *session) infos(ctx context.Context, in input, args []string) ([]resource.Info, error) {
	var (
		infos []resource.Info
		errs  []error
	)
	for info, err := range resource.Stream(ctx, s.mapper, s.request(in, args)) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		infos = append(infos, info)
	}
	return infos, errors.Join(errs...)
}

func (s *session) request(in input, args []string) resource.Request {
	return resource.Request{
		Files: in.files, Recursive: in.recursive, Kustomize: in.kustomize, In: s.In, Args: args,
		Labels: in.labels, Fields: in.fields, All: in.all, Lazy: in.lazy,
		Namespace: s.namespace, Enforced: s.enforced, AllNamespaces: in.allNamespaces,
	}
}
