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
		Short:   "Debug Services",
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
		Short: "Explain where connections to a Service go, and test them",
		Long: "Explain where connections to a Service go: the rule and proxy mode, the endpoints that may be chosen and why the\n" +
			"others may not, the source address that the server sees, and session affinity. Then connect to each endpoint and to\n" +
			"the address itself from the node, or from a pod with --from, and explain each failure.\n\n" +
			"NAME may be a DNS name of the Service, and PORT the name of a port; /UDP or /SCTP after it selects one of several\n" +
			"ports with the same number. Without a port all ports are traced. Sampan's agent on the node reports the installed\n" +
			"rules and tests the connections, which needs permission to get nodes/proxy. On other clusters only the expected path\n" +
			"is printed.\n\n" +
			"TCP connections are opened and closed; UDP endpoints get an empty packet. With session affinity this binds the client.\n\n" +
			"Exit codes: 0 something answers, 2 nothing answers, 4 the Service, address or port does not exist.",
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
	cmd.Flags().StringVar(&v.from, "from", "", "pod to connect from: NAME or NAMESPACE/NAME (default: the node itself)")
	cmd.Flags().StringVar(&v.fromNode, "from-node", "", "node to connect from (default: the node that has the address, or the first ready node)")
	_ = cmd.RegisterFlagCompletionFunc("from", v.completePods) // they exist: they were made above
	_ = cmd.RegisterFlagCompletionFunc("from-node", v.completeNodes)
	return cmd
}

// check refuses what cannot be meant.
func (v *traceVerb) check(args []string) (trace.Target, error) {
	switch v.Output {
	case "", "wide", "json", "yaml":
	default:
		return trace.Target{}, fmt.Errorf("-o %s: must be json, yaml or wide; the default is a tree", v.Output)
	}
	switch {
	case len(args) == 0:
		return trace.Target{}, errors.New("specify the Service: NAME, NAME:PORT, IP:PORT or NODEIP:NODEPORT")
	case len(args) > 1:
		return trace.Target{}, fmt.Errorf("exactly one Service is required, got %d", len(args))
	case v.from != "" && v.fromNode != "":
		return trace.Target{}, errors.New("--from and --from-node are mutually exclusive")
	}
	t, err := trace.Parse(args[0])
	if err != nil {
		return t, err
	}
	if t.Namespace != "" && v.Namespace != "" && t.Namespace != v.Namespace {
		return t, fmt.Errorf("%s is in namespace %s, but -n is %s", args[0], t.Namespace, v.Namespace)
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
