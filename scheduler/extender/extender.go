package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/h2"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Options has the address of an extender and its verbs. Only URL is required.
type Options struct {
	URL string // in front of the verbs, http or https

	// Verbs are what follows the URL; an empty one is not asked.
	Filter, Prioritize, Preempt, Bind string

	Weight    int64         // of its scores, which go from 0 to 10
	Timeout   time.Duration // of a request; 0 means 5 s
	TLS       *tls.Config   // nil means the system's authorities
	NamesOnly bool          // it knows the nodes, and is sent their names (nodeCacheCapable)
	Ignorable bool

	// Resources are those it manages: it is asked about pods that want one of them. None mean that it is asked about
	// every pod.
	Resources []corev1.ResourceName
}

const (
	// mostAnswer bounds the size of an answer (extender-X1): 5,000 nodes of 10 KB.
	mostAnswer = 64 << 20

	defaultTimeout = 5 * time.Second // upstream's
	mostScore      = 10              // of an extender
)

// An Extender implements [scheduler.Extender] over HTTP.
type Extender struct {
	opts   Options
	client *http.Client
}

var _ scheduler.Extender = (*Extender)(nil)

// New returns an extender. It makes no request.
func New(o Options) (*Extender, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("extender: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("extender: URL %q, want http:// or https:// and a host", o.URL)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	t := h2.Client(&http.Transport{TLSClientConfig: o.TLS, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second})
	return &Extender{o, &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ClientTLS returns the TLS configuration of a client from PEM: the authorities that it trusts (nil: the system's), and its
// own certificate and key, if it has one.
func ClientTLS(ca, cert, key []byte, serverName string, insecure bool) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, InsecureSkipVerify: insecure} // asked for
	if len(ca) > 0 {
		if insecure {
			return nil, errors.New("a CA and insecure must not be set both")
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the CA contains no PEM certificate")
		}
	}
	if (len(cert) > 0) != (len(key) > 0) {
		return nil, errors.New("a client certificate needs its key, and a key its certificate")
	}
	if len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Name implements [scheduler.Extender].
func (e *Extender) Name() string { return e.opts.URL }

// Ignorable implements [scheduler.Extender].
func (e *Extender) Ignorable() bool { return e.opts.Ignorable }

// Binds implements [scheduler.Extender].
func (e *Extender) Binds() bool { return e.opts.Bind != "" }

// Interested implements [scheduler.Extender].
func (e *Extender) Interested(pod *corev1.Pod) bool {
	if len(e.opts.Resources) == 0 {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for _, r := range e.opts.Resources {
				_, asks := containers[i].Resources.Requests[r]
				_, limits := containers[i].Resources.Limits[r]
				if asks || limits {
					return true
				}
			}
		}
	}
	return false
}

// Ask implements [scheduler.Extender].
func (e *Extender) Ask(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (scheduler.Opinion, error) {
	out := scheduler.Opinion{Refused: map[string]plugin.Verdict{}, Scores: map[string]int64{}}
	if e.opts.Filter != "" {
		left, err := e.filter(ctx, pod, nodes, &out)
		if err != nil {
			return scheduler.Opinion{}, err
		}
		nodes = left
	}
	if e.opts.Prioritize != "" && e.opts.Weight > 0 && len(nodes) > 0 {
		if err := e.prioritize(ctx, pod, nodes, &out); err != nil {
			return scheduler.Opinion{}, err
		}
	}
	return out, nil
}

func (e *Extender) args(pod *corev1.Pod, nodes []*corev1.Node) *args {
	a := &args{Pod: pod}
	if e.opts.NamesOnly {
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n.Name
		}
		a.NodeNames = &names
		return a
	}
	a.Nodes = &corev1.NodeList{Items: make([]corev1.Node, len(nodes))}
	for i, n := range nodes {
		a.Nodes.Items[i] = *n
	}
	return a
}

func (e *Extender) filter(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node, out *scheduler.Opinion) ([]*corev1.Node, error) {
	var got filterResult
	if err := e.send(ctx, e.opts.Filter, e.args(pod, nodes), &got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	fit := map[string]bool{}
	switch {
	case e.opts.NamesOnly && got.NodeNames != nil:
		for _, name := range *got.NodeNames {
			fit[name] = true
		}
	case got.Nodes != nil:
		for i := range got.Nodes.Items {
			fit[got.Nodes.Items[i].Name] = true
		}
	}
	var left []*corev1.Node
	for _, n := range nodes {
		why, refused := got.FailedNodes[n.Name]
		never, final := got.FailedAndUnresolvableNodes[n.Name]
		switch {
		case final:
			out.Refused[n.Name] = plugin.Never(never)
		case refused:
			out.Refused[n.Name] = plugin.Refuse(why)
		case !fit[n.Name]:
			out.Refused[n.Name] = plugin.Refuse("node(s) were refused by extender " + e.opts.URL)
		default:
			left = append(left, n)
		}
		delete(fit, n.Name)
	}
	for name := range fit {
		return nil, fmt.Errorf("the answer to %s names node %q, which was not asked about", e.opts.Filter, name)
	}
	return left, nil
}

func (e *Extender) prioritize(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node, out *scheduler.Opinion) error {
	var got []hostPriority
	if err := e.send(ctx, e.opts.Prioritize, e.args(pod, nodes), &got); err != nil {
		return err
	}
	for _, p := range got {
		if p.Score < 0 || p.Score > mostScore {
			return fmt.Errorf("the answer to %s gives node %q the score %d, want 0 to %d", e.opts.Prioritize, p.Host, p.Score, mostScore)
		}
		out.Scores[p.Host] = p.Score * e.opts.Weight * (plugin.MaxScore / mostScore)
	}
	return nil
}

// Spare implements [scheduler.Extender].
func (e *Extender) Spare(ctx context.Context, pod *corev1.Pod, node string, gone []*corev1.Pod) (bool, error) {
	if e.opts.Preempt == "" {
		return true, nil
	}
	a := &preemptionArgs{Pod: pod}
	if e.opts.NamesOnly {
		meta := &metaVictims{}
		for _, p := range gone {
			meta.Pods = append(meta.Pods, &metaPod{string(p.UID)})
		}
		a.NodeNameToMetaVictims = map[string]*metaVictims{node: meta}
	} else {
		a.NodeNameToVictims = map[string]*victims{node: {Pods: gone}}
	}
	var got preemptionResult
	if err := e.send(ctx, e.opts.Preempt, a, &got); err != nil {
		return false, err
	}
	kept, ok := got.NodeNameToMetaVictims[node]
	return ok && kept != nil && len(kept.Pods) == len(gone), nil
}

// Bind implements [scheduler.Extender].
func (e *Extender) Bind(ctx context.Context, pod *corev1.Pod, node string) error {
	var got bindingResult
	if err := e.send(ctx, e.opts.Bind, &bindingArgs{pod.Name, pod.Namespace, pod.UID, node}, &got); err != nil {
		return err
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	return nil
}

// send posts a question and reads the answer (extender-X1).
func (e *Extender) send(ctx context.Context, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Timeout)
	defer cancel()
	target := strings.TrimRight(e.opts.URL, "/") + "/" + verb
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s", target, resp.Status)
	}
	limited := &io.LimitedReader{R: resp.Body, N: mostAnswer + 1}
	data, err := io.ReadAll(limited)
	switch {
	case err != nil:
		return fmt.Errorf("POST %s: %w", target, err)
	case len(data) > mostAnswer:
		return fmt.Errorf("POST %s: the answer is longer than %d MiB", target, mostAnswer>>20)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("POST %s: %w", target, err)
	}
	return nil
}
