package client

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
)

// FromClientset returns a client over the connection of a client-go clientset, or of anything
// else with its method CoreV1, as [FromREST] does. Objects come out as Go types.
func FromClientset[C interface{ RESTClient() rest.Interface }](clientset interface{ CoreV1() C }) (*REST, error) {
	return FromREST(clientset.CoreV1().RESTClient(), RESTOptions{})
}

// FromREST returns a client over the connection, credentials and all, of a client-go
// REST client. Every clientset has one: FromREST(clientset.CoreV1().RESTClient(), …).
// It reaches every resource, whatever group that REST client is for, and is not
// held back by its rate limiter. A fake clientset has no connection and is an
// error. It makes no request.
func FromREST(r rest.Interface, opts RESTOptions) (*REST, error) {
	rc, ok := r.(*rest.RESTClient)
	if !ok || rc == nil {
		return nil, fmt.Errorf("client: a %T has no connection to a server", r)
	}
	base := rc.Get().AbsPath("/").URL()
	if base == nil || base.Host == "" {
		return nil, errors.New("client: the REST client has no server")
	}
	cfg := &rest.Config{Host: base.String(), UserAgent: opts.UserAgent}
	c := &REST{config: cfg, base: base, http: http.DefaultClient, dynamic: opts.Dynamic, warn: opts.Warn}
	if rc.Client != nil {
		// The limit of the client would end watches, too; see do.
		own := *rc.Client
		own.Timeout, c.timeout = 0, rc.Client.Timeout
		c.http = &own
	}
	return c, nil
}
