package standalone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/wait"
)

// connect returns a client, or an error if these credentials can never work.
func connect(cfg *rest.Config, agent string) (*client.REST, error) {
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: agent})
	if err != nil {
		return nil, err
	}
	if cfg.CertFile != "" && cfg.KeyFile != "" && len(cfg.CertData)+len(cfg.KeyData) == 0 {
		// These are read for each connection, since they may be renewed.
		if _, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile); err != nil {
			return nil, fmt.Errorf("credentials for %s: %w", cfg.Host, err)
		}
	}
	return api, nil
}

// pace is the pace of retries while the API server is unreachable.
var pace = wait.Pace{First: 100 * time.Millisecond, Factor: 2, Max: 30 * time.Second, Jitter: 0.5}

// sayAgain is the interval at which waiting for the API server is logged again.
const sayAgain = 10 * time.Minute

// awaitNode reads the Node, or returns nil if there is none. While the API server is unreachable or
// denies access it retries, and logs that once, when the cause changes, and every sayAgain. The
// error is nil when ctx is cancelled.
func awaitNode(ctx context.Context, api client.Interface, name string, log *slog.Logger) (node *corev1.Node, err error) {
	var said time.Time
	var cause metav1.StatusReason
	err = wait.Until(ctx, pace, func(ctx context.Context) (bool, error) {
		got, err := client.Nodes.Get(ctx, api, "", name)
		if ctx.Err() != nil {
			return false, nil
		}
		unknown := apierrors.IsNotFound(err)
		if err != nil && !unknown {
			if !mayPass(err) {
				return false, fmt.Errorf("reading the node %s: %w", name, err)
			}
			if why := apierrors.ReasonForError(err); said.IsZero() || why != cause || time.Since(said) >= sayAgain {
				log.WarnContext(ctx, "waiting for the API server; rules that an earlier proxy left stay as they are", "err", err)
				said, cause = time.Now(), why
			}
			return false, nil
		}
		if !said.IsZero() {
			log.InfoContext(ctx, "the API server answers")
		}
		if unknown {
			log.WarnContext(ctx, "the API server has no Node of this name yet; if its name is different, set --hostname-override", "node", name)
			return true, nil
		}
		node = got
		return true, nil
	})
	if ctx.Err() != nil {
		return nil, nil
	}
	return node, err
}

// mayPass reports whether an error may go away without a restart of this program. Credentials for
// another server do not.
func mayPass(err error) bool {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return false
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*client.CertificateError](err); ok { // clocks are set late, and files are renewed
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}
