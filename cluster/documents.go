package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// documents makes raw requests to the API server in this process, as [client.REST] does to others.
type documents struct {
	server http.Handler
	most   int // bytes of an answer; 0 means no limit
}

// Do makes a request and returns a successful answer. A failure is an API status error.
func (d documents) Do(ctx context.Context, r client.RawRequest) (*http.Response, error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	u := url.URL{Path: r.Path, RawQuery: r.Query.Encode()}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	req.RequestURI = req.URL.RequestURI()
	for name, value := range map[string]string{"Accept": r.Accept, "Content-Type": r.ContentType} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	a := &answer{header: http.Header{}, code: http.StatusOK, most: d.most}
	d.server.ServeHTTP(a, req)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err) // the answer may be a part of it
	}
	if a.cut {
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", r.Method, r.Path, d.most)
	}
	if a.code < http.StatusMultipleChoices {
		return &http.Response{StatusCode: a.code, Status: http.StatusText(a.code), Header: a.header, Body: io.NopCloser(&a.body), Request: req}, nil
	}
	var status metav1.Status
	if json.Unmarshal(a.body.Bytes(), &status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(&status)
	}
	return nil, apierrors.NewGenericServerResponse(a.code, strings.ToLower(r.Method), schema.GroupResource{}, "", a.body.String(), 0, true)
}

// An answer is a response in memory.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	most   int  // bytes of the body; 0 means no limit
	cut    bool // there were more
}

var errTooLarge = errors.New("the answer is too large")

// Header implements [http.ResponseWriter]; all other methods do as well.
func (a *answer) Header() http.Header  { return a.header }
func (a *answer) WriteHeader(code int) { a.code = code }
func (a *answer) Write(b []byte) (int, error) {
	if a.most > 0 && a.body.Len()+len(b) > a.most {
		a.cut = true
		return 0, errTooLarge
	}
	return a.body.Write(b)
}
