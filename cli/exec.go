package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
)

type exec struct {
	*Globals
	container   string
	stdin, tty  bool
	quietOutput bool
}

// exitCodeHeader is where the node agent says how a command ended.
const exitCodeHeader = "X-Sampan-Exit-Code"

func execCommand(g *Globals) *cobra.Command {
	e := &exec{Globals: g}
	cmd := &cobra.Command{
		Use:   "exec POD [-c CONTAINER] -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a container and print its output",
		Long: "Run a command in a running container, print what it writes when it has ended, and end with its exit code.\n" +
			"The command gets no input and no terminal.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			switch {
			case e.stdin || e.tty:
				return &usageError{cmd.CommandPath(), errors.New("exec gives commands no input and no terminal: leave out -i and -t, the output is printed when the command has ended")}
			case at < 0:
				return &usageError{cmd.CommandPath(), errors.New("put -- before the command: sampan exec POD -- COMMAND")}
			case at != 1:
				return &usageError{cmd.CommandPath(), fmt.Errorf("want one pod before the --, found %d arguments", at)}
			case len(args) == at:
				return &usageError{cmd.CommandPath(), errors.New("you must specify at least one command for the container")}
			}
			return e.run(cmd.Context(), args[0], args[at:])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&e.container, "container", "c", "", "which container of the pod")
	f.BoolVarP(&e.stdin, "stdin", "i", false, "not supported")
	f.BoolVarP(&e.tty, "tty", "t", false, "not supported")
	f.BoolVarP(&e.quietOutput, "quiet", "q", false, "print only what the command writes")
	return cmd
}

func (e *exec) run(ctx context.Context, name string, command []string) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	c, err := s.typed()
	if err != nil {
		return err
	}
	pod, err := client.Pods.Get(ctx, c, s.namespace, strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/"))
	if err != nil {
		return err
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return fmt.Errorf("cannot exec into a container in a completed pod; current phase is %s", pod.Status.Phase)
	case pod.Spec.NodeName == "":
		return fmt.Errorf("pod %s does not have a host assigned; 'sampan wait pod/%s --for=running' waits for it", pod.Name, pod.Name)
	}
	notes := e.Err
	if e.quietOutput {
		notes = io.Discard
	}
	container, err := containerOf(pod, e.container, notes)
	if err != nil {
		return err
	}
	resp, err := c.Do(ctx, client.RawRequest{
		Method: http.MethodPost,
		Path:   strings.Join([]string{"/api/v1/nodes", pod.Spec.NodeName, "proxy/run", pod.Namespace, pod.Name, container}, "/"),
		Query:  url.Values{"cmd": command},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(e.Out, resp.Body); err != nil {
		return fmt.Errorf("reading the output: %w", err)
	}
	code, err := strconv.Atoi(resp.Header.Get(exitCodeHeader))
	if err != nil {
		code = 0 // another kubelet answers like this only when the command succeeded
	}
	if code != 0 {
		if !e.quietOutput {
			_, _ = fmt.Fprintf(e.Err, "command terminated with exit code %d\n", code)
		}
		return &exitError{code: code}
	}
	return nil
}
