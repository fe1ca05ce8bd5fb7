package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
)

type exec struct {
	*session.Globals
	container   string
	stdin, tty  bool
	quietOutput bool
}

// Where the node agent says how a command ended, how much of the answer is its standard
// output, and which of its streams were so long that they may have been cut off.
const (
	exitCodeHeader     = "X-Sampan-Exit-Code"
	stdoutLengthHeader = "X-Sampan-Stdout-Length"
	outputLimitHeader  = "X-Sampan-Output-Limit-Reached"
)

// Exec returns the verb exec.
func Exec(g *session.Globals) *cobra.Command {
	e := &exec{Globals: g}
	cmd := &cobra.Command{
		Use:   "exec POD|TYPE/NAME [-c CONTAINER] -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a container and print its output",
		Long: "Run a command in a running container, print its output when it has ended, and exit with its exit code. At most 16 MiB\n" +
			"of each output stream are captured; more is an error. The command gets no standard input and no terminal.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			switch {
			case e.stdin || e.tty:
				return exit.Usage(cmd.CommandPath(), errors.New("-i and -t are not supported: leave them out; the output is printed when the command has ended"))
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
	f.BoolVarP(&e.stdin, "stdin", "i", false, "not supported")
	f.BoolVarP(&e.tty, "tty", "t", false, "not supported")
	f.BoolVarP(&e.quietOutput, "quiet", "q", false, "print only the output of the command")
	return cmd
}

func (e *exec) run(ctx context.Context, name string, command []string) error {
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
	switch {
	case podstate.Finished(pod):
		return fmt.Errorf("cannot exec into a container in a completed pod; current phase is %s", pod.Status.Phase)
	case pod.Spec.NodeName == "":
		return fmt.Errorf("pod %s does not have a host assigned; wait for it with '%s pod/%s --for=running'", pod.Name, s.Hint("wait", pod.Namespace), pod.Name)
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
		Method:  http.MethodPost,
		Path:    strings.Join([]string{"/api/v1/nodes", pod.Spec.NodeName, "proxy/run", pod.Namespace, pod.Name, container}, "/"),
		Query:   commandQuery(command),
		Endless: true, // a command may take any time
	})
	if err != nil {
		return e.foreignFailure(ctx, c, pod.Spec.NodeName, command, err)
	}
	defer resp.Body.Close()
	if resp.Header.Get(exitCodeHeader) == "" && !plain(command) {
		return spacesRefused(pod.Spec.NodeName)
	}
	// Other kubelets do not separate the streams; then everything is standard output.
	if length, err := strconv.ParseInt(resp.Header.Get(stdoutLengthHeader), 10, 64); err == nil && length >= 0 {
		if _, err := io.CopyN(e.Out, resp.Body, length); err != nil {
			return fmt.Errorf("reading the output: %w", err)
		}
		if _, err := io.Copy(e.Err, resp.Body); err != nil {
			return fmt.Errorf("reading the output: %w", err)
		}
	} else if _, err := io.Copy(e.Out, resp.Body); err != nil {
		return fmt.Errorf("reading the output: %w", err)
	}
	code, err := strconv.Atoi(resp.Header.Get(exitCodeHeader))
	if err != nil {
		code = 0 // another kubelet answers like this only when the command succeeded
	}
	return e.ended(code, resp.Header.Get(outputLimitHeader))
}

// ended returns the result of a command that ended with code. Full lists the streams that reached the limit.
func (e *exec) ended(code int, full string) error {
	if code != 0 {
		if !e.quietOutput {
			_, _ = fmt.Fprintf(e.Err, "command terminated with exit code %d\n", code)
		}
		if full != "" {
			_, _ = fmt.Fprintf(e.Err, "error: %s\n", limitReached(full))
		}
		return exit.With(code, nil)
	}
	if full != "" {
		return errors.New(limitReached(full))
	}
	return nil
}

// commandQuery returns the parameters of the request to run a command. Upstream's kubelet reads cmd alone, and splits it at
// spaces; Sampan's also reads command, one for each word. So a command for which cmd is not exact runs nothing at
// upstream's, rather than something else.
func commandQuery(command []string) url.Values {
	if plain(command) {
		return url.Values{"cmd": {strings.Join(command, " ")}}
	}
	return url.Values{"command": command}
}

// plain reports whether the words of a command are what they were after they have been joined and split at spaces.
func plain(command []string) bool {
	return slices.Equal(strings.Fields(strings.Join(command, " ")), command)
}

func spacesRefused(node string) error {
	return fmt.Errorf("the kubelet of node %s only runs commands whose arguments have no spaces and are not empty; nothing was run: use kubectl exec", node)
}

// failedCommand is how upstream's kubelet says that a command has failed. It leaves out the standard output.
var failedCommand = regexp.MustCompile(`(?s)^command '.*' exited with (\d+): (.*)$`) //nolint:gochecknoglobals // a constant

// foreignFailure returns what a failed request means if the kubelet is not Sampan's: that the command has failed, or that
// the kubelet does not take such a command. Otherwise it returns err.
func (e *exec) foreignFailure(ctx context.Context, c *client.REST, node string, command []string, err error) error {
	if m := failedCommand.FindStringSubmatch(serverText(err)); m != nil {
		if m[2] != "" {
			_, _ = fmt.Fprintln(e.Err, m[2]) // its last line feed is not in the error
		}
		if code, convErr := strconv.Atoi(m[1]); convErr == nil {
			return e.ended(code, "")
		}
	}
	if plain(command) || !apierrors.IsInternalError(err) {
		return err
	}
	if n, getErr := client.Nodes.Get(ctx, c, "", node); getErr == nil && !strings.HasSuffix(n.Status.NodeInfo.KubeletVersion, ownVersion) {
		return spacesRefused(node)
	}
	return err
}

// ownVersion is the end of the version of Sampan's own kubelet, in the status of its node.
const ownVersion = "+sampan"

// serverText returns the text of an answer that is not a Status.
func serverText(err error) string {
	var s apierrors.APIStatus
	if !errors.As(err, &s) || s.Status().Details == nil {
		return ""
	}
	for _, cause := range s.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return cause.Message
		}
	}
	return ""
}

// limitReached is the error about output streams that exceeded the limit.
func limitReached(streams string) string {
	return fmt.Sprintf("%s of the command exceeded the limit of 16 MiB, and the rest was dropped: "+
		"let the command write to a file, or print less", streams)
}
