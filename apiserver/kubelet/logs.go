package kubelet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// defaultContainer is the annotation that names the container for requests that name none.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// longestRefusal is how much of a node's error text is passed on.
const longestRefusal = 64 << 10

// ServeLogs answers a GET of pods/log, with the options in the query as in PodLogOptions. The log of a pod that is on
// no node yet is empty (204). With follow the answer goes on until the container ends or the client goes. A client that
// asks for a WebSocket gets the log in messages.
func (c *Client) ServeLogs(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	query, err := logQuery(r.URL.Query(), pod)
	if err != nil {
		refuse(w, err)
		return
	}
	container, err := pickContainer(r.URL.Query().Get("container"), pod)
	if err != nil {
		refuse(w, err)
		return
	}
	if pod.Spec.NodeName == "" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	log, err := c.openLog(r, pod, container, query)
	if err != nil {
		refuse(w, err)
		return
	}
	defer log.Close()
	if wsstream.IsWebSocketRequest(r) {
		serveMessages(w, r, log)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	if query.Get("follow") != "" {
		_ = http.NewResponseController(w).Flush()
	}
	if err := copyStream(w, log); err != nil && r.Context().Err() == nil {
		// The header is out, so all that can be done is to break the answer off visibly.
		c.opts.Log.WarnContext(r.Context(), "log stream interrupted", "pod", pod.Namespace+"/"+pod.Name, "container", container, "node", pod.Spec.NodeName, "err", err)
		panic(http.ErrAbortHandler)
	}
}

// openLog asks the node of a pod for the log of a container. The caller closes the log.
func (c *Client) openLog(r *http.Request, pod *corev1.Pod, container string, query url.Values) (io.ReadCloser, error) {
	node, host, err := c.nodeOf(r.Context(), pod)
	if err != nil {
		return nil, err
	}
	from := url.URL{
		Scheme:   "https",
		Host:     host,
		Path:     fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container),
		RawQuery: query.Encode(),
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, err
	}
	transport := c.to
	if flag(r.URL.Query(), "insecureSkipTLSVerifyBackend") {
		transport = c.unverified // the user accepts a log that could be another server's
	}
	resp, err := transport(node).RoundTrip(req)
	if err != nil {
		if r.Context().Err() == nil {
			c.opts.Log.WarnContext(r.Context(), "cannot reach a node", "node", node.Name, "address", host, "err", err)
		}
		return nil, unreachable(err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		return nil, nodeRefusal(resp, pod.Name)
	}
	return resp.Body, nil
}

// copyStream copies what comes as it comes.
func copyStream(w http.ResponseWriter, from io.Reader) error {
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return nil // the client has gone, as it may
			}
			if ferr := flusher.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
				return nil // the same
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// nodeRefusal turns a node's error into one of the API, with the node's own words.
func nodeRefusal(resp *http.Response, pod string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, longestRefusal))
	if err != nil {
		return unreachable(err)
	}
	text := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(text))
	}
	refusal := apierrors.NewGenericServerResponse(resp.StatusCode, http.MethodGet, schema.GroupResource{Resource: "pods/log"}, pod, text, 0, true)
	if text != "" {
		refusal.ErrStatus.Message = text
	}
	return refusal
}

// pickContainer returns the container whose log is meant.
func pickContainer(asked string, pod *corev1.Pod) (string, error) {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	has := func(name string) bool {
		return slices.Contains(names, name)
	}
	if asked != "" {
		if !has(asked) {
			return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", asked, pod.Name))
		}
		return asked, nil
	}
	if name := pod.Annotations[defaultContainer]; name != "" && has(name) {
		return name, nil
	}
	switch len(pod.Spec.Containers) {
	case 1:
		return pod.Spec.Containers[0].Name, nil
	case 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}

// logQuery checks the options of a log request and returns them as a kubelet
// takes them. Everything that is wrong is reported at once.
func logQuery(asked url.Values, pod *corev1.Pod) (url.Values, error) {
	query := url.Values{}
	var errs field.ErrorList
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if flag(asked, name) {
			query.Set(name, "true")
		}
	}
	number := func(name string, least int64, words string) {
		s := asked.Get(name)
		if s == "" {
			return
		}
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(name), s, "must be a whole number"))
		case n < least:
			errs = append(errs, field.Invalid(field.NewPath(name), n, words))
		default:
			query.Set(name, s)
		}
	}
	number("tailLines", 0, "must be greater than or equal to 0")
	number("limitBytes", 1, "must be greater than 0")
	number("sinceSeconds", 1, "must be greater than 0")
	if s := asked.Get("sinceTime"); s != "" {
		t, err := time.Parse(time.RFC3339, s)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath("sinceTime"), s, "must be a time as in RFC 3339, like 2026-01-31T15:04:05Z"))
		case asked.Get("sinceSeconds") != "":
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		default:
			query.Set("sinceTime", t.Format(time.RFC3339))
		}
	}
	switch s := asked.Get("stream"); s {
	case "", corev1.LogStreamAll:
	case corev1.LogStreamStdout, corev1.LogStreamStderr:
		query.Set("stream", s)
		if asked.Get("tailLines") != "" {
			errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
		}
	default:
		errs = append(errs, field.NotSupported(field.NewPath("stream"), s, []string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout}))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, pod.Name, errs)
	}
	return query, nil
}

// flag reads a boolean as Kubernetes does: there and not plainly false.
func flag(values url.Values, name string) bool {
	if !values.Has(name) {
		return false
	}
	s := strings.ToLower(values.Get(name))
	return s != "false" && s != "0"
}
