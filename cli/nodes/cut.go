package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/simulation"
)

// Cut returns the verb cut of simulate.
func Cut(g *session.Globals) *cobra.Command {
	return cutVerb(g, "simulate cut", true, "Disconnect simulated nodes from the API server",
		"Disconnect simulated nodes from the API server, as if their network had failed. Their pods keep running. After 40 s the\n"+
			"nodes become NotReady, and their pods are evicted according to their tolerations.\n\n"+
			"The command sets the annotation "+simulation.FailureAnnotation+": "+simulation.Cut+"; 'sampan simulate restore' removes it.")
}

// Restore returns the verb restore of simulate.
func Restore(g *session.Globals) *cobra.Command {
	return cutVerb(g, "simulate restore", false, "Reconnect simulated nodes",
		"Reconnect simulated nodes. They catch up with the API server and report the status of their pods.")
}

func cutVerb(g *session.Globals, name string, cut bool, short, long string) *cobra.Command {
	v := &nodeVerb{Globals: g, name: name}
	_, word, _ := strings.Cut(name, " ")
	cmd := &cobra.Command{
		Use: word + " NODE… | -l SELECTOR", Short: short, Long: long,
		Example: "  sampan " + name + " node-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, nodes, err := v.nodes(cmd.Context(), args)
			if err != nil {
				return err
			}
			var errs []error
			for _, n := range nodes {
				if !simulation.Simulated(n) {
					errs = append(errs, fmt.Errorf("node %s is not simulated: its container runtime is %q; nothing was changed", n.Name, n.Status.NodeInfo.ContainerRuntimeVersion))
				}
			}
			if len(errs) > 0 {
				return errors.Join(errs...)
			}
			for _, n := range nodes {
				errs = append(errs, v.cut(cmd.Context(), c, n, cut))
			}
			return errors.Join(errs...)
		},
	}
	v.flags(cmd)
	return cmd
}

// cut disconnects a node or restores it, and prints the result.
func (v *nodeVerb) cut(ctx context.Context, c client.Interface, n *corev1.Node, cut bool) error {
	done, value := "restored", any(nil)
	if cut {
		done, value = "disconnected", simulation.Cut
	}
	if simulation.IsCut(n) == cut {
		_, err := fmt.Fprintf(v.Out, "node/%s already %s%s\n", n.Name, done, v.dryRun.Note())
		return err
	}
	if v.dryRun != "client" {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{simulation.FailureAnnotation: value}}})
		if err == nil {
			_, err = c.Patch(ctx, client.Nodes.GroupVersionResource, "", n.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: v.dryRun.Option()}, "")
		}
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(v.Out, "node/%s %s%s\n", n.Name, done, v.dryRun.Note())
	return err
}
