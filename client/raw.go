package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A RawRequest is a request that does not go by resource, or whose answer is not
// an object: discovery, tables, logs, what a proxy answers.
type RawRequest struct {
	Method      string // empty means GET
	Path        string // absolute on the server, not escaped
	Query       url.Values
	Accept      string // empty leaves the choice to the server
	ContentType string // of Body
	Body        io.Reader
}

// Do makes a raw request, once, and returns a successful answer, whose body the
// caller must close; ctx ends it, too. A failure is an API status error, as
// elsewhere.
func (c *REST) Do(ctx context.Context, r RawRequest) (*http.Response, error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	u := *c.base
	u.Path = path.Join("/", u.Path, r.Path)
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("client: %s %s: %w", r.Method, r.Path, err)
	}
	for key, value := range map[string]string{"Accept": r.Accept, "Content-Type": r.ContentType} {
		if value != "" {
			req.Header.Set(key, value)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	err = c.failure(resp, &request{verb: strings.ToLower(r.Method)})
	if resp.StatusCode == http.StatusUnauthorized {
		if expired := c.ownCertificate(err); expired != nil {
			return nil, expired
		}
	}
	return nil, err
}
