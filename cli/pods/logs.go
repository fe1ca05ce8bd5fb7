package pods

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/terminal"
)

type logs struct {
	*session.Globals
	labels        string
	container     string
	allContainers bool
	allPods       bool
	follow        bool
	previous      bool
	timestamps    bool
	prefix        bool
	since         string
	sinceTime     string
	tail          int64
	limitBytes    int64
	maxRequests   int
}

// Logs returns the verb logs.
func Logs(g *session.Globals) *cobra.Command {
	l := &logs{Globals: g}
	cmd := &cobra.Command{
		Use:   "logs POD | TYPE/NAME | -l SELECTOR",
		Short: "Print the logs of containers",
		Long: "Print the logs of the containers of a pod. TYPE/NAME, such as deploy/NAME, job/NAME or svc/NAME, selects one pod of\n" +
			"that object: running pods first, then the newest; --all-pods prints the logs of all of them.",
		Example: "  sampan logs job/build -f\n  sampan logs web-abc12 --previous\n  sampan logs -l app=web --prefix",
		Args:    cobra.RangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				l.container = args[1]
				args = args[:1]
			}
			return l.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&l.labels, "selector", "l", "", "print the logs of all pods that match this label selector")
	f.StringVarP(&l.container, "container", "c", "", "container name")
	f.BoolVar(&l.allContainers, "all-containers", false, "print the logs of all containers of the pod")
	f.BoolVar(&l.allPods, "all-pods", false, "print the logs of all pods of the controller")
	f.BoolVarP(&l.follow, "follow", "f", false, "stream the log until the container ends")
	f.BoolVarP(&l.previous, "previous", "p", false, "print the log of the previous instance of the container")
	f.BoolVar(&l.timestamps, "timestamps", false, "print a timestamp before each line")
	f.BoolVar(&l.prefix, "prefix", false, "print the pod and container names before each line")
	f.StringVar(&l.since, "since", "", "print only lines newer than this duration (5s, 2m, 3h)")
	f.StringVar(&l.sinceTime, "since-time", "", "print only lines written after this time (RFC 3339)")
	f.Int64Var(&l.tail, "tail", -1, "number of recent lines to print; -1 prints all; with -l the default is 10")
	f.Int64Var(&l.limitBytes, "limit-bytes", 0, "maximum number of bytes to print")
	f.IntVar(&l.maxRequests, "max-log-requests", 5, "maximum number of logs to follow at the same time")
	return cmd
}

// query returns the parameters of the request, without the container.
func (l *logs) query() (url.Values, error) {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": l.follow, "previous": l.previous, "timestamps": l.timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if l.since != "" && l.sinceTime != "" {
		return nil, errors.New("at most one of --since and --since-time may be used")
	}
	if l.since != "" {
		d, err := durationOrSeconds(l.since)
		if err != nil {
			return nil, fmt.Errorf("--since=%s: want a duration such as 5s, 2m or 3h", l.since)
		}
		if d > 0 { // 0 is no limit, as without the flag
			q.Set("sinceSeconds", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
		}
	}
	if l.sinceTime != "" {
		if _, err := time.Parse(time.RFC3339, l.sinceTime); err != nil {
			return nil, fmt.Errorf("--since-time=%s: want a time such as 2006-01-02T15:04:05Z", l.sinceTime)
		}
		q.Set("sinceTime", l.sinceTime)
	}
	if l.tail < -1 {
		return nil, fmt.Errorf("--tail=%d: want -1 for everything, or more", l.tail)
	}
	if l.tail == -1 && l.labels != "" {
		l.tail = 10
	}
	if l.tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(l.tail, 10))
	}
	if l.maxRequests < 1 {
		return nil, fmt.Errorf("--max-log-requests=%d: want 1 or more", l.maxRequests)
	}
	if l.limitBytes < 0 {
		return nil, fmt.Errorf("--limit-bytes=%d: want more than 0", l.limitBytes)
	}
	if l.limitBytes > 0 {
		q.Set("limitBytes", strconv.FormatInt(l.limitBytes, 10))
	}
	return q, nil
}

// A source is one container whose log is printed.
type source struct {
	pod       *corev1.Pod
	container string
}

func (l *logs) run(ctx context.Context, args []string) error {
	query, err := l.query()
	switch {
	case err != nil:
		return exit.Usage("sampan logs", err)
	case len(args) == 0 && l.labels == "":
		return exit.Usage("sampan logs", errors.New("expected POD, TYPE/NAME or -l SELECTOR"))
	case len(args) > 0 && l.labels != "":
		return exit.Usage("sampan logs", errors.New("a name and -l are mutually exclusive"))
	case l.container != "" && l.allContainers:
		return exit.Usage("sampan logs", errors.New("--all-containers=true should not be specified with a container name"))
	}
	s, err := l.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	pods, err := l.pods(ctx, s, c, args)
	if err != nil {
		return err
	}
	var sources []source
	for _, p := range pods {
		names, err := l.containers(p)
		if err != nil {
			return err
		}
		for _, n := range names {
			sources = append(sources, source{p, n})
		}
	}
	if l.follow && len(sources) > 1 {
		return l.followAll(ctx, c, query, sources)
	}
	for _, src := range sources {
		if err := l.one(ctx, c, query, src, terminal.Raw(l.Out)); err != nil {
			return err
		}
	}
	return nil
}

// pods returns the pods that are meant.
func (l *logs) pods(ctx context.Context, s *session.Session, c client.Interface, args []string) ([]*corev1.Pod, error) {
	if l.labels != "" {
		pods, _, err := client.Pods.List(ctx, c, s.Namespace, metav1.ListOptions{LabelSelector: l.labels})
		if err == nil && len(pods) == 0 {
			_, _ = fmt.Fprintf(l.Err, "No resources found in %s namespace.\n", s.Namespace)
		}
		return pods, err
	}
	return podsNamed(ctx, s, c, args, l.allPods)
}

// podsNamed returns the pod with a name, or the one of a TYPE/NAME (all of them, if so
// wanted).
func podsNamed(ctx context.Context, s *session.Session, c client.Interface, args []string, all bool) ([]*corev1.Pod, error) {
	if !strings.Contains(args[0], "/") {
		args = []string{"pod/" + args[0]}
	}
	infos, err := s.Infos(ctx, session.Input{}, args)
	if err != nil {
		return nil, err
	}
	i := infos[0]
	if i.Mapping.GroupVersionResource == client.Pods.GroupVersionResource {
		p, err := client.Pods.Get(ctx, c, i.Namespace, i.Name)
		if err != nil {
			return nil, err
		}
		return []*corev1.Pod{p}, nil
	}
	pods, err := podsOf(ctx, s, c, i)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		degree := await.Running
		if i.Mapping.Resource == "services" { // which cannot run
			degree = await.Ready
		}
		return nil, exit.With(exit.Gone, fmt.Errorf("%s has no pods yet; wait for one with '%s %s --for=%s'", i, s.Hint("wait", i.Namespace), i, degree))
	}
	if !all && len(pods) > 1 {
		_, _ = fmt.Fprintf(s.Err, "Found %d pods, using pod/%s\n", len(pods), pods[0].Name)
		pods = pods[:1]
	}
	return pods, nil
}

// podsOf returns the pods that an object selects, the most useful first: ready pods, then other running ones, and of each the newest
// first. Of a controller that creates pods it returns only the pods that the controller owns.
func podsOf(ctx context.Context, s *session.Session, c client.Interface, i resource.Info) ([]*corev1.Pod, error) {
	got, err := s.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, "")
	if err != nil {
		return nil, err
	}
	u, ok := got.(*unstructured.Unstructured)
	if !ok {
		return nil, session.NotAnObject(i, got)
	}
	selector, err := podSelector(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i, err)
	}
	if selector.Empty() {
		return nil, fmt.Errorf("%s does not select pods: must be a pod, or an object with a pod selector", i)
	}
	pods, _, err := client.Pods.List(ctx, c, i.Namespace, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	if i.Mapping.Resource != "deployments" && i.Mapping.Resource != "services" {
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !metav1.IsControlledBy(p, u) })
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if by := cmp.Compare(usefulness(b), usefulness(a)); by != 0 {
			return by
		}
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return pods, nil
}

// usefulness is greater for a pod that runs, and greatest for one that is ready.
func usefulness(p *corev1.Pod) int {
	switch {
	case p.Status.Phase != corev1.PodRunning:
		return 0
	case !podstate.Ready(p):
		return 1
	}
	return 2
}

// podSelector returns the selector of an object's pods, which is empty if it has none. Old
// kinds have labels there, newer ones a selector with operators.
func podSelector(u *unstructured.Unstructured) (labels.Selector, error) {
	fields, _, err := unstructured.NestedMap(u.Object, "spec", "selector")
	if err != nil {
		return nil, err
	}
	_, simple := fields["matchLabels"]
	_, expressions := fields["matchExpressions"]
	if simple || expressions {
		var s metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s); err != nil {
			return nil, err
		}
		return metav1.LabelSelectorAsSelector(&s)
	}
	set, _, err := unstructured.NestedStringMap(u.Object, "spec", "selector")
	return labels.SelectorFromSet(set), err
}

// containers returns the containers of a pod that are meant.
func (l *logs) containers(p *corev1.Pod) ([]string, error) {
	if l.allContainers {
		var names []string
		for _, c := range p.Spec.InitContainers {
			names = append(names, c.Name)
		}
		for _, c := range p.Spec.Containers {
			names = append(names, c.Name)
		}
		return names, nil
	}
	name, err := containerOf(p, l.container, l.Err)
	return []string{name}, err
}

// containerOf returns the container of a pod that a verb works on.
func containerOf(p *corev1.Pod, asked string, notes io.Writer) (string, error) {
	var all []string
	for _, c := range p.Spec.Containers {
		all = append(all, c.Name)
	}
	for _, c := range p.Spec.InitContainers {
		all = append(all, c.Name)
	}
	switch {
	case asked != "" && !slices.Contains(all, asked):
		return "", fmt.Errorf("container %s is not valid for pod %s: it has %s", asked, p.Name, strings.Join(all, ", "))
	case asked != "":
		return asked, nil
	case len(all) == 0:
		return "", fmt.Errorf("pod %s has no containers", p.Name)
	}
	if name := p.Annotations["kubectl.kubernetes.io/default-container"]; slices.Contains(all, name) {
		return name, nil
	}
	if len(all) > 1 {
		_, _ = fmt.Fprintf(notes, "Defaulted container %q out of: %s\n", all[0], strings.Join(all, ", "))
	}
	return all[0], nil
}

// one prints the log of one container.
func (l *logs) one(ctx context.Context, c *client.REST, query url.Values, src source, w io.Writer) error {
	q := url.Values{"container": {src.container}}
	maps.Copy(q, query)
	path := "/api/v1/namespaces/" + src.pod.Namespace + "/pods/" + src.pod.Name + "/log"
	resp, err := c.Do(ctx, client.RawRequest{Path: path, Query: q, Endless: l.follow})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if l.prefix {
		return prefixed(resp.Body, w, fmt.Sprintf("[pod/%s/%s] ", src.pod.Name, src.container))
	}
	_, err = io.Copy(w, resp.Body)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// prefixed copies lines whole, each after a prefix.
func prefixed(r io.Reader, w io.Writer, prefix string) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			if !strings.HasSuffix(line, "\n") {
				line += "\n"
			}
			if _, err := io.WriteString(w, prefix+line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// followAll follows several logs; lines do not mix.
func (l *logs) followAll(ctx context.Context, c *client.REST, query url.Values, sources []source) error {
	if len(sources) > l.maxRequests {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use --max-log-requests to increase the limit", len(sources), l.maxRequests)
	}
	out := &lineWriter{w: terminal.Raw(l.Out)}
	errs := make([]error, len(sources))
	g := run.NewGroup(ctx, 0)
	for i, src := range sources {
		g.Go(func(ctx context.Context) {
			part := out.part()
			errs[i] = l.one(ctx, c, query, src, part)
			part.flush()
		})
	}
	g.Wait()
	g.Stop()
	return errors.Join(errs...)
}

// A lineWriter lets several writers share one by whole lines.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lineWriter) part() *linePart { return &linePart{to: l} }

type linePart struct {
	to   *lineWriter
	rest []byte
}

// Write implements io.Writer.
func (p *linePart) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	end := slices.Index(p.rest, '\n')
	if end < 0 {
		return len(b), nil
	}
	for i := len(p.rest) - 1; i > end; i-- {
		if p.rest[i] == '\n' {
			end = i
			break
		}
	}
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	_, err := p.to.w.Write(p.rest[:end+1])
	p.rest = append(p.rest[:0], p.rest[end+1:]...)
	return len(b), err
}

func (p *linePart) flush() {
	if len(p.rest) > 0 {
		_, _ = p.Write([]byte("\n"))
	}
}

// durationOrSeconds reads kubectl's old way to say a number of seconds, too.
func durationOrSeconds(text string) (time.Duration, error) {
	if strings.Trim(text, "0123456789") == "" && text != "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d > math.MaxInt32*time.Second) {
		err = errors.New("the duration is out of range")
	}
	return d, err
}
