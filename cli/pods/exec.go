package pods

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/podstate"
)

type executing struct {
	*session.Globals
	container         string
	stdin, tty, quiet bool
}

// Exec returns the verb exec.
func Exec(g *session.Globals) *cobra.Command {
	e := &executing{Globals: g}
	cmd := &cobra.Command{
		Use:   "exec POD|TYPE/NAME [-c CONTAINER] [-it] -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a container",
		Long: "Run a command in a running container, and exit with its exit code. -i passes the standard input on, -t gives the\n" +
			"command a terminal. TYPE/NAME, such as deploy/NAME or svc/NAME, selects one pod of that object.",
		Example: "  sampan exec web -- date\n  sampan exec -it deploy/web -- sh\n  tar c . | sampan exec -i web -- tar x -C /tmp",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			switch {
			case at < 0:
				return exit.Usage(cmd.CommandPath(), errors.New("the command must follow --: sampan exec POD -- COMMAND"))
			case at != 1:
				return exit.Usage(cmd.CommandPath(), fmt.Errorf("exactly one pod is required before --, got %d arguments", at))
			case len(args) == at:
				return exit.Usage(cmd.CommandPath(), errors.New("you must specify at least one command for the container"))
			}
			return e.run(cmd.Context(), args[0], args[at:])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&e.container, "container", "c", "", "container name")
	f.BoolVarP(&e.stdin, "stdin", "i", false, "pass the standard input on to the command")
	f.BoolVarP(&e.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&e.quiet, "quiet", "q", false, "print only the output of the command")
	return cmd
}

func (e *executing) run(ctx context.Context, name string, command []string) error {
	s, err := e.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	pods, err := podsNamed(ctx, s, c, []string{name}, false)
	if err != nil {
		return err
	}
	pod := pods[0]
	if podstate.Finished(pod) {
		return fmt.Errorf("cannot exec into a container in a completed pod; current phase is %s", pod.Status.Phase)
	}
	if err := assigned(s, pod); err != nil {
		return err
	}
	container, err := containerOf(pod, e.container, e.notes())
	if err != nil {
		return err
	}
	k := &streaming{Streams: e.Streams, stdin: e.stdin, tty: e.tty, quiet: e.quiet}
	raw := k.raw()
	return k.ended(k.connect(ctx, c, call{subresource: "exec", pod: pod, container: container, command: command, tty: raw, raw: raw}))
}

func (e *executing) notes() io.Writer {
	if e.quiet {
		return io.Discard
	}
	return e.Err
}

// assigned returns an error if a pod is on no node.
func assigned(s *session.Session, pod *corev1.Pod) error {
	if pod.Spec.NodeName != "" {
		return nil
	}
	return fmt.Errorf("pod %s does not have a host assigned; wait for it with '%s pod/%s --for=running'", pod.Name, s.Hint("wait", pod.Namespace), pod.Name)
}
