package services

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
)

// completeLimit is how long a shell waits for names.
const completeLimit = 3 * time.Second

// list returns those names of a resource that begin with a word.
func list[T client.Object](ctx context.Context, v *traceVerb, r client.Resource[T], name func(T) []string, begin string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	s, err := v.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	server, err := s.Typed()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespace := s.Namespace
	if !r.Namespaced {
		namespace = ""
	}
	all, _, err := r.List(ctx, server, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, o := range all {
		for _, n := range name(o) {
			if strings.HasPrefix(n, begin) {
				names = append(names, n)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func portsOf(s *corev1.Service) (names []string) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		names = append(names, s.Name+":"+strconv.Itoa(int(p.Port)))
		if p.Name != "" {
			names = append(names, s.Name+":"+p.Name)
		}
	}
	return names
}

func nameOf[T client.Object](o T) []string { return []string{o.GetName()} }

// completeServices completes the name of a Service, and behind its colon that of a port.
func (v *traceVerb) completeServices(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.Contains(begin, ":") {
		return list(cmd.Context(), v, client.Services, portsOf, begin)
	}
	return list(cmd.Context(), v, client.Services, nameOf, begin)
}

func (v *traceVerb) completePods(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return list(cmd.Context(), v, client.Pods, nameOf, begin)
}

func (v *traceVerb) completeNodes(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return list(cmd.Context(), v, client.Nodes, nameOf, begin)
}
