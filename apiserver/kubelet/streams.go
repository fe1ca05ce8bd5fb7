package kubelet

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/extendwebsocketstokubelet"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sampan-io/sampan/internal/lingering"
)

// streams are the streams of exec or attach that a client wants.
type streams struct{ stdin, stdout, stderr, tty bool }

func streamsOf(asked url.Values) streams {
	return streams{stdin: flag(asked, "stdin"), stdout: flag(asked, "stdout"), stderr: flag(asked, "stderr"), tty: flag(asked, "tty")}
}

// query returns the streams as a kubelet takes them.
func (s streams) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{
		corev1.ExecStdinParam: s.stdin, corev1.ExecStdoutParam: s.stdout, corev1.ExecStderrParam: s.stderr, corev1.ExecTTYParam: s.tty,
	} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

// ServeExec answers a request for pods/exec, with the options in the query as in PodExecOptions: it runs a command in a
// container, and returns when the command or the connection has ended.
func (c *Client) ServeExec(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	s := streamsOf(r.URL.Query())
	query := s.query()
	for _, word := range r.URL.Query()["command"] {
		query.Add("command", word)
	}
	c.serveContainer(w, r, pod, "exec", s, query)
}

// ServeAttach answers a request for pods/attach, with the options in the query as in PodAttachOptions. It returns when
// the connection has ended.
func (c *Client) ServeAttach(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	s := streamsOf(r.URL.Query())
	c.serveContainer(w, r, pod, "attach", s, s.query())
}

func (c *Client) serveContainer(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, verb string, s streams, query url.Values) {
	w = lingering.Response(r.Context(), w)
	container, err := pickContainer(r.URL.Query().Get("container"), pod)
	if err != nil {
		refuse(w, err)
		return
	}
	to, transport, node, err := c.streamTarget(r, pod, "/"+verb+"/"+pod.Namespace+"/"+pod.Name+"/"+container, query)
	switch {
	case err != nil:
		refuse(w, err)
	case !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) || servesWebSockets(node):
		c.pass(w, r, to, transport)
	case s.stdin:
		c.translate(w, r, s, overSPDY(to, transport))
	default:
		c.passAsV4(w, r, to, transport, s)
	}
}

// servesWebSockets reports whether the kubelet of a node serves the newest protocols of WebSockets itself, for which it declares a
// feature (KEP-4006).
func servesWebSockets(node *corev1.Node) bool {
	return slices.Contains(node.Status.DeclaredFeatures, extendwebsocketstokubelet.ExtendWebSocketsToKubeletFeatureGate)
}

// ServePortForward answers a request for pods/portforward: every pair of streams in the connection is one to a port of
// the pod. Clients of the oldest WebSocket protocols name the ports in the query, as in PodPortForwardOptions. It
// returns when the connection has ended.
func (c *Client) ServePortForward(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	w = lingering.Response(r.Context(), w)
	query := url.Values{}
	ports, err := portsOf(r.URL.Query()["ports"])
	if err != nil {
		refuse(w, err)
		return
	}
	if len(ports) > 0 {
		query.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	to, transport, node, err := c.streamTarget(r, pod, "/portForward/"+pod.Namespace+"/"+pod.Name, query)
	switch {
	case err != nil:
		refuse(w, err)
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r) && !servesWebSockets(node):
		c.tunnel(w, r, to, transport)
	default:
		c.pass(w, r, to, transport)
	}
}

// mostPorts bounds the ports in one query, each of which takes the kubelet two streams.
const mostPorts = 1000

func portsOf(asked []string) (ports []string, err error) {
	for _, list := range asked {
		for text := range strings.SplitSeq(list, ",") {
			if _, err := strconv.ParseInt(text, 10, 32); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			if ports = append(ports, text); len(ports) > mostPorts {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("ports: must have at most %d items", mostPorts))
			}
		}
	}
	return ports, nil
}

// streamTarget returns the URL of a stream on the node of a pod, the transport to it, and the node. Its error is an API status error.
func (c *Client) streamTarget(r *http.Request, pod *corev1.Pod, path string, query url.Values) (*url.URL, http.RoundTripper, *corev1.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil, nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	node, host, err := c.nodeOf(r.Context(), pod)
	if err != nil {
		return nil, nil, nil, err
	}
	if !httpstream.IsUpgradeRequest(r) {
		return nil, nil, nil, apierrors.NewBadRequest("Upgrade request required")
	}
	return &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: query.Encode()}, c.to(node), node, nil
}
