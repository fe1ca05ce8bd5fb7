package localdisk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// requestLimit bounds a request to an agent. Removing a directory can take longer; then the agent goes on with it, and the next
// try finds the rest.
const requestLimit = time.Minute

// MaxAnswer bounds, in bytes, the answer of an agent, which may be a hostile program.
const MaxAnswer = 64 << 10

var (
	errWaiting = errors.New("the node has as many requests as it may have")
	errNoNode  = errors.New("the node does not exist")
	errExists  = errors.New("the node exists")
)

// A silentError says that the agent of a node reports no status, so that it is not asked.
type silentError struct{ node, message string }

func (e *silentError) Error() string {
	return fmt.Sprintf("node %q is not ready: %s", e.node, e.message)
}

// silence returns why the agent of a node is not asked: it does not report its status. It returns "" if it is. An agent whose
// node is not ready for another reason answers.
func silence(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionUnknown {
			return cmp.Or(c.Message, "its status is unknown")
		}
		return ""
	}
	return "its agent has not reported a status yet"
}

// ask calls f, which sends a request to the agent of a node, when the node may have one. Errors are errNoNode, errWaiting, a
// silentError, or those of f.
func (p *provisioner) ask(ctx context.Context, key controller.Key, node string, f func(ctx context.Context) (string, error)) (string, error) {
	// The name may be one that a user has written into a claim: only that of a Node can be part of a path.
	n, ok := p.nodes.Get("", node)
	if !ok {
		err := p.missing(ctx, node)
		if errors.Is(err, errExists) {
			err = controller.Again(fmt.Sprintf("node %q is not in the cache yet", node))
		}
		return "", err
	}
	if why := silence(n); why != "" {
		return "", &silentError{node, why}
	}
	if !p.turns.take(node, key) {
		return "", errWaiting
	}
	defer func() {
		for _, waited := range p.turns.give(node) {
			p.loop.Add(waited)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return f(ctx)
}

// missing returns errNoNode if the API server has no Node of this name, and errExists if it has one.
func (p *provisioner) missing(ctx context.Context, node string) error {
	_, err := client.Nodes.Get(ctx, p.Client, "", node)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("node %q: %w", node, errNoNode)
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", node, err)
	}
	return errExists
}

// make has the agent of a node make the directory of a volume, and returns its path.
func (p *provisioner) make(ctx context.Context, node, volume string) (string, error) {
	body, err := p.request(ctx, http.MethodPut, node, volume, nil)
	if err != nil {
		return "", err
	}
	var m made
	if err := json.Unmarshal(body, &m); err != nil {
		return "", fmt.Errorf("the agent of node %q returned no path of a volume: %w", node, err)
	}
	if !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) != m.Path || filepath.Base(m.Path) != volume {
		return "", fmt.Errorf("the agent of node %q returned the path %q, want an absolute path that ends with %q", node, m.Path, volume)
	}
	return m.Path, nil
}

// removeDir has the agent of a node remove the directory of a volume.
func (p *provisioner) removeDir(ctx context.Context, node string, v *corev1.PersistentVolume) error {
	if v.Spec.Local == nil || !isName(v.Name) {
		return failure(http.StatusConflict, "Conflict", fmt.Sprintf("the path of volume %q is not below the directory of this provisioner", v.Name))
	}
	_, err := p.request(ctx, http.MethodDelete, node, v.Name, url.Values{pathParameter: {v.Spec.Local.Path}})
	return err
}

// request sends a request about a volume to the agent of a node.
func (p *provisioner) request(ctx context.Context, method, node, volume string, query url.Values) ([]byte, error) {
	resp, err := p.Agents.Do(ctx, client.RawRequest{Method: method, Path: "/api/v1/nodes/" + node + "/proxy" + agentPath + volume, Query: query, Limit: requestLimit})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		// This is the answer of the API server or that of the kubelet, which may be hostile.
		if err := p.missing(ctx, node); !errors.Is(err, errExists) {
			return nil, err
		}
		return nil, fmt.Errorf("the kubelet of node %q does not provide volumes of %s; only the agent of Sampan does", node, Provisioner)
	case err != nil:
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err == nil && len(body) > MaxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	return body, nil
}
