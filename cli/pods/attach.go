package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/terminal"
)

// removeLimit bounds the request to delete a pod at the end.
const removeLimit = 10 * time.Second

type attaching struct {
	*session.Globals
	container         string
	stdin, tty, quiet bool
	keys              session.DetachKeys
}

// Attach returns the verb attach.
func Attach(g *session.Globals) *cobra.Command {
	a := &attaching{Globals: g}
	cmd := &cobra.Command{
		Use:   "attach POD|TYPE/NAME [-c CONTAINER] [-it]",
		Short: "Connect to the running process of a container",
		Long: "Print what the first process of a container writes from now on, and with -i pass the standard input on to it. Ctrl-C\n" +
			"ends the connection, not the process, unless the container has a terminal: then --detach-keys do.",
		Example: "  sampan attach web\n" +
			"  sampan attach web -it                       # ctrl-p,ctrl-q ends the connection\n" +
			"  sampan attach deploy/web -it --detach-keys=ctrl-x,x",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&a.container, "container", "c", "", "container name")
	f.BoolVarP(&a.stdin, "stdin", "i", false, "pass the standard input on to the container")
	f.BoolVarP(&a.tty, "tty", "t", false, "the standard input is a terminal")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print only the output of the container")
	a.keys.AddFlag(f)
	return cmd
}

func (a *attaching) run(ctx context.Context, name string) error {
	s, err := a.Connect()
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
		return fmt.Errorf("cannot attach a container in a completed pod; current phase is %s", pod.Status.Phase)
	}
	if err := assigned(s, pod); err != nil {
		return err
	}
	notes := a.Err
	if a.quiet {
		notes = io.Discard
	}
	container, err := containerOf(pod, a.container, notes)
	if err != nil {
		return fmt.Errorf("cannot attach to the container: %w", err)
	}
	k := &streaming{Streams: a.Streams, stdin: a.stdin, tty: a.tty, quiet: a.quiet, keys: a.keys}
	return k.ended(k.attach(ctx, s, c, pod, container))
}

// attach connects to a running container until it or ctx ends.
func (k *streaming) attach(ctx context.Context, s *session.Session, c *client.REST, pod *corev1.Pod, container string) error {
	has := hasTTY(pod, container)
	if k.tty && !has && !k.quiet {
		_, _ = fmt.Fprintf(k.Err, "error: Unable to use a TTY - container %s did not allocate one\n", container)
	}
	k.tty = has
	raw := k.raw()
	if !k.quiet {
		_, _ = fmt.Fprintln(k.Err, "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.")
		_, _ = fmt.Fprintln(k.Err, "If you don't see a command prompt, try pressing enter.")
	}
	err := k.connect(ctx, c, call{subresource: "attach", pod: pod, container: container, tty: has, raw: raw, redraw: true, detach: k.keys.Bytes()})
	if err == nil && !k.quiet && raw {
		again := fmt.Sprintf("'%s %s -c %s -i -t'", s.Hint("attach", pod.Namespace), pod.Name, container)
		if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == container }) {
			_, _ = fmt.Fprintf(k.Out, "Session ended, the ephemeral container will not be restarted but may be reattached using %s if it is still running\n", again)
		} else {
			_, _ = fmt.Fprintf(k.Out, "Session ended, resume using %s command\n", again)
		}
	}
	return err
}

func hasTTY(pod *corev1.Pod, name string) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if c.Name == name {
			return c.TTY
		}
	}
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == name && e.TTY })
}

// statusOf returns the status of a container, or nil.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// untilPod watches a pod until a condition is true, which may return an error, and returns the pod of that time.
func untilPod(ctx context.Context, c client.Interface, namespace, name string, done func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	for ctx.Err() == nil {
		pod, err := client.Pods.Get(ctx, c, namespace, name)
		if err != nil {
			return nil, err
		}
		if ok, err := done(pod); ok || err != nil {
			return pod, err
		}
		for e, err := range client.Pods.Watch(ctx, c, namespace, metav1.ListOptions{FieldSelector: selector, ResourceVersion: pod.ResourceVersion}) {
			if err != nil {
				break // read it again
			}
			now, ok := e.Object.(*corev1.Pod)
			if !ok || e.Type == "BOOKMARK" {
				continue
			}
			if e.Type == "DELETED" || now.UID != pod.UID {
				return nil, fmt.Errorf("pod %s was deleted", name)
			}
			if ok, err := done(now); ok || err != nil {
				return now, err
			}
		}
	}
	return nil, context.Cause(ctx)
}

// Foreground returns a function that attaches to a new pod with one container when that runs, and returns its exit code when
// the pod has ended, if it is not restarted and the user has not detached.
func Foreground(g *session.Globals) func(ctx context.Context, name string, how session.Foreground) error {
	return func(ctx context.Context, name string, how session.Foreground) error {
		s, err := g.Connect()
		if err != nil {
			return err
		}
		c, err := s.Typed()
		if err != nil {
			return err
		}
		k := &streaming{Streams: g.Streams, stdin: how.Stdin, tty: how.TTY, quiet: how.Quiet, keys: how.Detach}
		err = k.foreground(ctx, s, c, name)
		if how.Remove {
			err = errors.Join(err, removePod(ctx, s, c, name, how.Quiet))
		}
		return err
	}
}

func (k *streaming) foreground(ctx context.Context, s *session.Session, c *client.REST, name string) error {
	pod, err := untilPod(ctx, c, s.Namespace, name, func(p *corev1.Pod) (bool, error) {
		return podstate.Finished(p) || p.Status.Phase == corev1.PodRunning && podstate.Ready(p), nil
	})
	if err != nil {
		return err
	}
	container := pod.Spec.Containers[0].Name
	if err := k.attachOrLog(ctx, s, c, pod, container); err != nil {
		return err
	}
	if k.detached || pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return nil
	}
	pod, err = untilPod(ctx, c, pod.Namespace, name, func(p *corev1.Pod) (bool, error) {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed && p.Spec.RestartPolicy == corev1.RestartPolicyNever, nil
	})
	if err != nil || pod.Status.Phase == corev1.PodSucceeded {
		return err
	}
	status := statusOf(pod, container)
	if status == nil || status.State.Terminated == nil || status.State.Terminated.ExitCode == 0 {
		return fmt.Errorf("pod %s/%s failed with unknown exit code", pod.Namespace, pod.Name)
	}
	t := status.State.Terminated
	var said error
	if !k.quiet {
		said = fmt.Errorf("pod %s/%s terminated (%s)", pod.Namespace, pod.Name, t.Reason)
	}
	return exit.With(int(t.ExitCode), said)
}

// attachOrLog attaches to a container. If that has ended already, or cannot be attached to, it prints its log instead.
func (k *streaming) attachOrLog(ctx context.Context, s *session.Session, c *client.REST, pod *corev1.Pod, container string) error {
	status := statusOf(pod, container)
	if podstate.Finished(pod) || status != nil && status.State.Terminated != nil {
		_, err := k.log(ctx, c, pod, container, false, 0)
		return err
	}
	printed, err := k.log(ctx, c, pod, container, false, 0) // written before
	if err != nil && !k.quiet {
		_, _ = fmt.Fprintf(k.Err, "warning: couldn't fetch pre-attach logs: %v\n", err)
	}
	err = k.attach(ctx, s, c, pod, container)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if !k.quiet {
		_, _ = fmt.Fprintf(k.Err, "warning: couldn't attach to pod/%s, falling back to streaming logs: %v\n", pod.Name, err)
	}
	_, err = k.log(ctx, c, pod, container, true, printed)
	return err
}

// log prints a log without its first bytes, and returns how many it has printed.
func (k *streaming) log(ctx context.Context, c *client.REST, pod *corev1.Pod, container string, follow bool, without int64) (int64, error) {
	query := url.Values{"container": {container}}
	if follow {
		query.Set("follow", "true")
	}
	resp, err := c.Do(ctx, client.RawRequest{Path: podPath(pod, "log"), Query: query, Endless: follow})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, without); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return io.Copy(terminal.Raw(k.Out), resp.Body)
}

// removePod deletes a pod even if ctx has ended.
func removePod(ctx context.Context, s *session.Session, c *client.REST, name string, quiet bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	err := c.Delete(ctx, client.Pods.GroupVersionResource, s.Namespace, name, metav1.DeleteOptions{})
	if exit.IsGone(err) {
		return nil
	}
	if err == nil && !quiet {
		_, _ = fmt.Fprintf(s.Out, "pod %q deleted from %s namespace\n", name, s.Namespace)
	}
	return err
}
