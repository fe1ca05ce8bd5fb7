package cluster

import (
	"bytes"
	"context"
	"encoding/json"
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
type documents struct{ server http.Handler }

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
	a := &answer{header: http.Header{}, code: http.StatusOK}
	d.server.ServeHTTP(a, req)
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
}

// Header implements [http.ResponseWriter]; all other methods do as well.
func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
