package completion

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// values are the words of flags that accept a few, by the name of the flag. They are the same on all commands.
func values() map[string][]string {
	return map[string][]string{
		"cascade":           {"background", "foreground", "orphan"},
		"dry-run":           {"client", "none", "server"},
		"image-pull-policy": {string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)},
		"ip-family":         {"dual", "ipv4", "ipv6"},
		"proxy-mode":        {"kernel", "userspace"},
		"request-log":       {"all", "errors", "none", "writes"},
		"restart":           {string(corev1.RestartPolicyAlways), string(corev1.RestartPolicyNever), string(corev1.RestartPolicyOnFailure)},
		"subresource":       {"resize", "scale", "status"},
		"validate":          {"ignore", "strict", "warn"},
		"wait":              await.Names(),
	}
}

// addFlags gives the flags of a command and of those below it their completions.
func (c completer) addFlags(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		c.addFlags(child)
	}
	add := func(flag string, complete cobra.CompletionFunc) {
		if f := cmd.LocalFlags().Lookup(flag); f != nil && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists; the command may have a completion of its own
		}
	}
	for flag, all := range values() {
		add(flag, words(func() []string { return all }))
	}
	add("for", c.degrees)
	if cmd.Name() != "debug" { // there it is the name of a new container
		add("container", c.containers)
	}
	add("target", c.containers)
}

// degrees completes the degrees of a wait, with the conditions of the objects that are named.
func (c completer) degrees(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all := append(await.Names(), "all(", "any(", "cel=", "condition=", "jsonpath=", "settled=")
	if !strings.HasPrefix(begin, "condition=") || len(args) == 0 {
		return open(beginning(all, begin))
	}
	return c.ask(cmd.Context(), func(ctx context.Context, s *session.Session) ([]string, cobra.ShellCompDirective) {
		kind, _, _ := strings.Cut(args[0], "/")
		m, err := s.Mapper.ByName(ctx, kind)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var like client.Object = &unstructured.Unstructured{Object: map[string]any{}}
		if m.GroupVersionResource == client.Pods.GroupVersionResource {
			like = &corev1.Pod{}
		}
		like.GetObjectKind().SetGroupVersionKind(m.GroupVersion().WithKind(m.Kind))
		known, _ := events.KnownConditions(like)
		some := make([]string, 0, len(known))
		for _, k := range known {
			some = append(some, "condition="+k)
		}
		return beginning(some, begin), cobra.ShellCompDirectiveNoFileComp
	})
}

// containers completes the containers of the object that the first argument names: of a pod, or of the template of pods.
func (c completer) containers(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.ask(cmd.Context(), func(ctx context.Context, s *session.Session) ([]string, cobra.ShellCompDirective) {
		namespace, kind, name := s.Namespace, "pods", args[0]
		if cmd.Name() == "rolling-update" {
			kind = "replicationcontrollers"
		}
		if i := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, ":") }); cmd.Name() == "cp" && i >= 0 {
			name, _, _ = strings.Cut(args[i], ":") // [NAMESPACE/]POD:PATH
			if before, pod, is := strings.Cut(name, "/"); is {
				namespace, name = before, pod
			}
		} else if of, object, is := strings.Cut(name, "/"); is {
			kind, name = of, object
		}
		m, err := s.Mapper.ByName(ctx, kind)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		got, err := s.Get(ctx, m.GroupVersionResource, namespace, name, "")
		u, is := got.(*unstructured.Unstructured)
		if err != nil || !is {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []string
		for _, spec := range [][]string{{"spec"}, {"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
			for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
				found, _, _ := unstructured.NestedSlice(u.Object, append(slices.Clip(spec), list)...)
				for _, one := range found {
					if of, is := one.(map[string]any); is {
						name, _, _ := unstructured.NestedString(of, "name")
						all = append(all, name)
					}
				}
			}
		}
		return beginning(all, begin), cobra.ShellCompDirectiveNoFileComp
	})
}

// open returns completions of which those with a separator at the end go on without a space.
func open(some []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.ContainsFunc(some, func(w string) bool { return strings.HasSuffix(w, "=") || strings.HasSuffix(w, "(") }) {
		return some, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return some, cobra.ShellCompDirectiveNoFileComp
}
