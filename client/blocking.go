package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// untilHeader is how a server with blocking reads says how one ended.
const untilHeader = "Sampan-Until"

// MaxBlocking is the longest that a blocking read may be asked to wait.
const MaxBlocking = time.Hour

// Endings of a blocking read beside its outcomes.
const (
	ReadAbsent  = "absent"  // the named object does not exist
	ReadMissing = "missing" // no object exists
	ReadDeleted = "deleted" // the object was deleted in the meantime
)

// A BlockingRead asks a server to answer when an outcome is true; see
// docs/blocking-reads.md.
type BlockingRead struct {
	Until   []string      // NAME:EXPRESSION, the first that is true is the answer
	Missing string        // what absence means: fail, wait or done; empty means fail
	Limit   time.Duration // how long the server waits, in whole seconds; at most MaxBlocking
}

// A Reading is how a blocking read ended.
type Reading struct {
	// Ending is the outcome or one of the endings above, or empty if the server has no
	// blocking reads: Object is then simply its present state.
	Ending string

	Object  Object    // nil if it does not exist
	UID     types.UID // of an object that was deleted, if the server says so
	Reached bool      // there was a connection to the server, whatever came of it
}

// GetUntil reads an object when an outcome of the question is true. A server that does not
// know blocking reads answers at once. It is asked once: no failure is tried again, not
// even if the server is busy.
func (c *REST) GetUntil(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, read BlockingRead) (Reading, error) {
	if err := needName("get", gvr, name); err != nil {
		return Reading{}, err
	}
	query := url.Values{"timeoutSeconds": {strconv.FormatInt(int64(min(read.Limit, MaxBlocking)/time.Second), 10)}}
	if len(read.Until) > 0 {
		query["until"] = read.Until
	}
	if read.Missing != "" {
		query.Set("untilMissing", read.Missing)
	}
	r := &request{verb: "get", method: http.MethodGet, GroupVersionResource: gvr, namespace: namespace, name: name, query: query, endless: true}
	var reached atomic.Bool
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { reached.Store(true) },
	}))
	defer cancel()
	resp, _, err := c.send(ctx, r)
	got := Reading{Reached: reached.Load()}
	if err != nil {
		return got, err
	}
	got.Ending = resp.Header.Get(untilHeader)
	if resp.StatusCode >= http.StatusMultipleChoices {
		err := c.failure(resp, r)
		if !apierrors.IsNotFound(err) || got.Ending != ReadMissing && got.Ending != ReadDeleted {
			return got, err
		}
		if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
			got.UID = status.Status().Details.UID
		}
		return got, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return got, c.unreachable(ctx, err)
	}
	obj, err := c.decode(mediaType(resp), body, schema.GroupVersionKind{})
	if err != nil {
		return got, fmt.Errorf("client: answer to %s %s: %w", r.method, r.path(), err)
	}
	if status, ok := obj.(*metav1.Status); ok && got.Ending == ReadAbsent {
		if status.Details != nil {
			got.UID = status.Details.UID
		}
		return got, nil
	}
	object, ok := obj.(Object)
	if !ok {
		return got, fmt.Errorf("client: answer to %s %s: a %s, want an object", r.method, r.path(), KindOf(obj).Kind)
	}
	got.Object = object
	return got, nil
}
