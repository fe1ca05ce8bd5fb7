package completion

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// limit is how long a shell waits for a server.
const limit = 3 * time.Second

// names is how many names of objects are offered at most.
const names = 500

// An argument is the kind of a command's arguments.
type argument int

const (
	objects argument = iota // TYPE NAME…, or TYPE/NAME…
	pods                    // POD, or TYPE/NAME
	nodes
	controllers // ReplicationControllers
)

// arguments are the commands whose arguments are objects, without the name of the program.
func arguments() map[string]argument {
	return map[string]argument{
		"get": objects, "delete": objects, "scale": objects, "wait": objects, "history": objects, "history purge": objects, "diff": objects,
		"rollout status": objects, "rollout history": objects, "rollout undo": objects, "rollout restart": objects,
		"rollout pause": objects, "rollout resume": objects, "rollout promote": objects, "rollout abort": objects,
		"logs": pods, "exec": pods, "attach": pods, "port-forward": pods, "debug": pods, "top pods": pods,
		"cordon": nodes, "uncordon": nodes, "drain": nodes, "top nodes": nodes, "simulate cut": nodes, "simulate restore": nodes,
		"rolling-update": controllers,
	}
}

// Add gives the commands below root their completions. The connection is that of the globals' flags.
func Add(root *cobra.Command, g *session.Globals) {
	c := completer{g}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"namespace": c.namespaces, "context": words(g.Contexts), "name": words(g.Clusters),
		"cluster": words(g.KubeconfigClusters), "user": words(g.KubeconfigUsers),
		"output": func(_ *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return open(beginning(formats(), begin))
		},
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete) // the flags exist
	}
	for path, what := range arguments() {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = c.arguments(what)
		}
	}
	c.addFlags(root)
}

// formats are the values of -o; some go on behind the equals sign.
func formats() []string {
	return []string{
		"json", "yaml", "kyaml", "name", "wide", "jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "custom-columns=", "custom-columns-file=",
	}
}

// words completes words that are known without a server.
func words(all func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(all(), begin), cobra.ShellCompDirectiveNoFileComp
	}
}

func beginning(all []string, begin string) (some []string) {
	for _, word := range all {
		if strings.HasPrefix(word, begin) {
			some = append(some, word)
		}
	}
	return some
}

// A completer asks the server.
type completer struct{ *session.Globals }

// arguments returns the completion of a command's arguments.
func (c completer) arguments(what argument) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return c.ask(cmd.Context(), func(ctx context.Context, s *session.Session) ([]string, cobra.ShellCompDirective) {
			kind, _, slash := strings.Cut(begin, "/")
			switch {
			case slash && (what == objects || what == pods):
				return c.objects(ctx, s, kind, kind+"/", begin)
			case what == objects && len(args) == 0:
				return c.types(ctx, s, begin)
			case what == objects && strings.ContainsAny(args[0], "/,"):
				return nil, cobra.ShellCompDirectiveNoFileComp
			case what == objects:
				return c.objects(ctx, s, args[0], "", begin)
			case what == nodes:
				return c.objects(ctx, s, "nodes", "", begin)
			case len(args) > 0:
				return nil, cobra.ShellCompDirectiveNoFileComp // the rest are not objects
			case what == controllers:
				return c.objects(ctx, s, "replicationcontrollers", "", begin)
			}
			return c.objects(ctx, s, "pods", "", begin)
		})
	}
}

func (c completer) namespaces(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.ask(cmd.Context(), func(ctx context.Context, s *session.Session) ([]string, cobra.ShellCompDirective) {
		return c.objects(ctx, s, "namespaces", "", begin)
	})
}

// ask connects to the server, which has a few seconds to answer.
func (c completer) ask(ctx context.Context, f func(context.Context, *session.Session) ([]string, cobra.ShellCompDirective)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := c.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return f(ctx, s)
}

// types completes the name of a type. One whose name another group has, too, and which comes later, has its group in its name.
func (c completer) types(ctx context.Context, s *session.Session, begin string) (all []string, _ cobra.ShellCompDirective) {
	known := map[string]string{} // the group of a name
	seen := map[string]bool{}
	for m := range s.Mapper.Served(ctx) {
		name := m.Resource
		if group, taken := known[name]; taken && group != m.Group {
			name += "." + m.Group
		} else {
			known[name] = m.Group
		}
		if m.Can("list") && !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	before, last := "", begin // TYPE,TYPE
	if comma := strings.LastIndexByte(begin, ','); comma >= 0 {
		before, last = begin[:comma+1], begin[comma+1:]
	}
	some := beginning(all, last)
	for i := range some {
		some[i] = before + some[i]
	}
	return some, cobra.ShellCompDirectiveNoFileComp
}

// objects completes the name of an object of a type, behind a prefix.
func (c completer) objects(ctx context.Context, s *session.Session, kind, prefix, begin string) ([]string, cobra.ShellCompDirective) {
	m, err := s.Mapper.ByName(ctx, kind)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := list(ctx, s, m)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for i := range all {
		all[i] = prefix + all[i]
	}
	return beginning(all, begin), cobra.ShellCompDirectiveNoFileComp
}

// list returns the names of the objects of a type in the session's namespace.
func list(ctx context.Context, s *session.Session, m resource.Mapping) (all []string, err error) {
	namespace := ""
	if m.Namespaced {
		namespace = s.Namespace
	}
	resp, err := s.Do(ctx, client.RawRequest{
		Path: m.Path(namespace, ""), Query: url.Values{"limit": {strconv.Itoa(names)}},
		Accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var found metav1.PartialObjectMetadataList
	err = json.NewDecoder(resp.Body).Decode(&found)
	for i := range found.Items {
		all = append(all, found.Items[i].Name)
	}
	return all, err
}
