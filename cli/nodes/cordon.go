package nodes

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// A nodeVerb is what cordon, uncordon and drain have in common.
type nodeVerb struct {
	*session.Globals
	name     string // of the verb, for messages
	selector string // of nodes
	dryRun   session.DryRun
}

func (v *nodeVerb) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&v.selector, "selector", "l", "", "only nodes that match this label selector")
	v.dryRun.AddFlag(cmd)
}

// Cordon returns the verb cordon.
func Cordon(g *session.Globals) *cobra.Command {
	return cordonVerb(g, "cordon", true, "Mark nodes as unschedulable",
		"Mark nodes as unschedulable. Running pods stay; 'sampan drain' evicts them.")
}

// Uncordon returns the verb uncordon.
func Uncordon(g *session.Globals) *cobra.Command {
	return cordonVerb(g, "uncordon", false, "Mark nodes as schedulable", "Mark nodes as schedulable.")
}

func cordonVerb(g *session.Globals, name string, closed bool, short, long string) *cobra.Command {
	v := &nodeVerb{Globals: g, name: name}
	cmd := &cobra.Command{
		Use: name + " NODE… | -l SELECTOR", Short: short, Long: long,
		Example: "  sampan " + name + " node-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, nodes, err := v.nodes(cmd.Context(), args)
			if err != nil {
				return err
			}
			var errs []error
			for _, n := range nodes {
				errs = append(errs, v.cordon(cmd.Context(), c, n, closed))
			}
			return errors.Join(errs...)
		},
	}
	v.flags(cmd)
	return cmd
}

// nodes returns the nodes of the arguments or the selector, or an error if any is missing.
func (v *nodeVerb) nodes(ctx context.Context, args []string) (*session.Session, client.Interface, []*corev1.Node, error) {
	command := "sampan " + v.name
	switch {
	case len(args) == 0 && v.selector == "":
		return nil, nil, nil, exit.Usage(command, errors.New("must specify a node name or -l SELECTOR"))
	case len(args) > 0 && v.selector != "":
		return nil, nil, nil, exit.Usage(command, errors.New("a node name and -l are mutually exclusive"))
	}
	if _, err := labels.Parse(v.selector); err != nil {
		return nil, nil, nil, exit.Usage(command, fmt.Errorf("--selector=%s: %w", v.selector, err))
	}
	s, err := v.Connect()
	if err != nil {
		return nil, nil, nil, err
	}
	c, err := s.Typed()
	if err != nil {
		return nil, nil, nil, err
	}
	if v.selector != "" {
		nodes, _, err := client.Nodes.List(ctx, c, "", metav1.ListOptions{LabelSelector: v.selector})
		if err == nil && len(nodes) == 0 {
			err = exit.With(exit.Gone, fmt.Errorf("no node matches -l %s", v.selector))
		}
		return s, c, nodes, err
	}
	var nodes []*corev1.Node
	var errs []error
	for _, name := range args {
		n, err := client.Nodes.Get(ctx, c, "", name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		nodes = append(nodes, n)
	}
	return s, c, nodes, errors.Join(errs...)
}

// cordon cordons or uncordons a node, and prints the result.
func (v *nodeVerb) cordon(ctx context.Context, c client.Interface, n *corev1.Node, closed bool) error {
	done, patch := "uncordoned", `{"spec":{"unschedulable":null}}`
	if closed {
		done, patch = "cordoned", `{"spec":{"unschedulable":true}}`
	}
	if n.Spec.Unschedulable == closed {
		_, err := fmt.Fprintf(v.Out, "node/%s already %s%s\n", n.Name, done, v.dryRun.Note())
		return err
	}
	if v.dryRun != "client" {
		_, err := c.Patch(ctx, client.Nodes.GroupVersionResource, "", n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: v.dryRun.Option()}, "")
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(v.Out, "node/%s %s%s\n", n.Name, done, v.dryRun.Note())
	return err
}
