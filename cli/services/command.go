package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/proxy/trace"
)

// Command returns the verb service, with the verbs below it.
func Command(g *session.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "service",
		Aliases: []string{"svc"},
		Short:   "See how connections to Services go",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(traceCommand(g))
	return cmd
}

// A traceVerb is the verb trace with its flags.
type traceVerb struct {
	*session.Globals
	from, fromNode string
}

func traceCommand(g *session.Globals) *cobra.Command {
	v := &traceVerb{Globals: g}
	cmd := &cobra.Command{
		Use:   "trace NAME | NAME:PORT | IP:PORT | NODEIP:NODEPORT",
		Short: "How connections to a Service go, what answers, and why nothing does",
		Long: "Say how connections to a Service go: by which rule and in which mode, which endpoints may be chosen and why the\n" +
			"others are not, whose address the server sees, and where this client goes back to. Then each of these endpoints and\n" +
			"the address itself are tried from the node, or from a pod with --from, and what does not answer is explained.\n\n" +
			"A name may be that in DNS, and a port its name; /UDP or /SCTP behind it chooses among ports of one number. A name\n" +
			"without a port stands for every port. What the node really has and what answers is asked of Sampan's agent on the\n" +
			"node, which needs the permission to get nodes/proxy. On other clusters the plan is shown, and that the rest is not known.\n\n" +
			"A TCP connection is made and closed, to UDP an empty packet is sent. With session affinity that binds the client.\n\n" +
			"The exit code is 0 if something answers, 2 if nothing does, 4 if there is no such Service, address or port.",
		Example: "  sampan service trace web\n  sampan service trace web:http --from pod/client\n  sampan service trace 10.96.0.10:53/UDP\n  sampan service trace 192.0.2.7:30080 -o yaml",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := v.check(args)
			if err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			return v.run(cmd.Context(), target)
		},
		ValidArgsFunction: v.completeServices,
	}
	cmd.Flags().StringVar(&v.from, "from", "", "pod from which to connect: NAME or NAMESPACE/NAME (default: its node)")
	cmd.Flags().StringVar(&v.fromNode, "from-node", "", "node from which to connect (default: the one that has the address, or the first that is ready)")
	_ = cmd.RegisterFlagCompletionFunc("from", v.completePods) // they exist: they were made above
	_ = cmd.RegisterFlagCompletionFunc("from-node", v.completeNodes)
	return cmd
}

// check refuses what cannot be meant.
func (v *traceVerb) check(args []string) (trace.Target, error) {
	switch v.Output {
	case "", "wide", "json", "yaml":
	default:
		return trace.Target{}, fmt.Errorf("-o %s: want json, yaml or wide, or leave it out for a tree", v.Output)
	}
	switch {
	case len(args) == 0:
		return trace.Target{}, errors.New("say what to trace: NAME, NAME:PORT, IP:PORT or NODEIP:NODEPORT")
	case len(args) > 1:
		return trace.Target{}, fmt.Errorf("%d things to trace, want one", len(args))
	case v.from != "" && v.fromNode != "":
		return trace.Target{}, errors.New("--from and --from-node: want one of them, a pod is on its node")
	}
	t, err := trace.Parse(args[0])
	if err != nil {
		return t, err
	}
	if t.Namespace != "" && v.Namespace != "" && t.Namespace != v.Namespace {
		return t, fmt.Errorf("%s is in the namespace %s, and -n says %s", args[0], t.Namespace, v.Namespace)
	}
	return t, nil
}

func (v *traceVerb) run(ctx context.Context, target trace.Target) error {
	s, err := v.Connect()
	if err != nil {
		return err
	}
	server, err := s.Typed()
	if err != nil {
		return err
	}
	l := looker{server: server, namespace: s.Namespace}
	w, err := l.look(ctx, target, v.from, v.fromNode)
	var t *trace.Trace
	if err == nil {
		t, err = trace.Explain(*w)
	}
	if nobody := (*trace.NotFoundError)(nil); errors.As(err, &nobody) {
		return exit.With(exit.Gone, err)
	}
	if err != nil {
		return err
	}
	if err := v.print(t); err != nil {
		return err
	}
	if t.Answered() {
		return nil
	}
	return exit.With(exit.Failed, fmt.Errorf("nothing answers at Service %s/%s", t.Namespace, t.Name))
}

func (v *traceVerb) print(t *trace.Trace) error {
	switch v.Output {
	case "json":
		text, err := json.MarshalIndent(t, "", "    ")
		if err == nil {
			_, err = fmt.Fprintf(v.Out, "%s\n", text)
		}
		return err
	case "yaml":
		text, err := yaml.Marshal(t)
		if err == nil {
			_, err = v.Out.Write(text)
		}
		return err
	}
	return t.Print(v.Out, v.Output == "wide")
}
