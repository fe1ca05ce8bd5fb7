package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// A RawRequest is a request that does not go by resource, or whose answer is not
// an object: discovery, tables, logs, answers of a proxy.
type RawRequest struct {
	Method      string // empty means GET
	Path        string // absolute on the server, not escaped
	Query       url.Values
	Accept      string // empty leaves the choice to the server
	ContentType string // of Body
	Body        io.Reader

	// Limit bounds how long the whole answer may take if the client's own limit does not
	// do so sooner; 0 leaves it to the client. Endless is for an answer that goes
	// on until the context ends: then there is no limit.
	Limit   time.Duration
	Endless bool
}

// Do makes a raw request, once, and returns a successful answer, whose body the
// caller must close; ctx ends it, too. A failure is an API status error, as
// elsewhere.
func (c *REST) Do(ctx context.Context, r RawRequest) (resp *http.Response, err error) {
	ctx, cancel := c.limited(ctx, r.Limit, r.Endless)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	u := c.URL(r.Path, r.Query)
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("client: %s %s: %w", r.Method, r.Path, err)
	}
	for key, value := range map[string]string{"Accept": r.Accept, "Content-Type": r.ContentType} {
		if value != "" {
			req.Header.Set(key, value)
		}
	}
	resp, err = c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	c.passWarnings(resp)
	if resp.StatusCode < 300 {
		resp.Body = &limitedBody{resp.Body, ctx, cancel}
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

// URL returns the address of a path on the server, for connections that are not plain requests.
func (c *REST) URL(at string, query url.Values) *url.URL {
	u := *c.base
	u.Path = path.Join("/", u.Path, at)
	u.RawQuery = query.Encode()
	return &u
}

// limited returns the context of a request, with the shorter of the client's limit and
// another (if they are not 0) unless the request is endless. That a limit ended it is
// an [*UnreachableError].
func (c *REST) limited(ctx context.Context, other time.Duration, endless bool) (context.Context, context.CancelFunc) {
	limit := c.timeout
	if other > 0 && (limit == 0 || other < limit) {
		limit = other
	}
	if limit == 0 || endless {
		return context.WithCancel(ctx) // leaving a watch ends its stream at once
	}
	return context.WithTimeoutCause(ctx, limit, &UnreachableError{
		Server: c.base.Scheme + "://" + c.base.Host,
		Err:    fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded),
	})
}

// A limitedBody is the body of an answer whose context ends with it.
type limitedBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request
	cancel context.CancelFunc
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

func (b *limitedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
