package httpserver

import (
	"fmt"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/past"
)

// query returns the parameters of the request's URL; parameters that are given twice
// count once.
func (x *exchange) query() url.Values {
	if x.r.URL.RawQuery == "" {
		return nil
	}
	return x.r.URL.Query()
}

// momentOf returns the moment whose state a read asks for, or "" for the present one.
func momentOf(q url.Values) (string, error) {
	at, ok := q[past.Parameter]
	if !ok {
		return "", nil
	}
	if len(at) != 1 || at[0] == "" {
		return "", apierrors.NewBadRequest(past.Parameter + ": must be one time such as 2006-01-02T15:04:05Z, a time before now such as 10m, or a revision")
	}
	return at[0], nil
}

// notAt returns an error if the request asks for an earlier state.
func notAt(q url.Values) error {
	if !q.Has(past.Parameter) {
		return nil
	}
	return apierrors.NewBadRequest(past.Parameter + ": must only be used with a read of an object or a list, and not with a watch or a blocking read")
}

// isTrue reads a parameter as Kubernetes reads booleans: there and neither "false" nor
// "0".
func isTrue(q url.Values, name string) bool {
	v, ok := q[name]
	return ok && (len(v) == 0 || v[0] != "false" && v[0] != "0")
}

// number reads a parameter that is a number; nil if it is not there.
func number(q url.Values, name string) (*int64, error) {
	text := q.Get(name)
	if text == "" {
		return nil, nil // an absent parameter is no fault
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("parameter %s: %q is not a number", name, text))
	}
	return &n, nil
}

func listOptions(q url.Values) (metav1.ListOptions, error) {
	if q == nil {
		return metav1.ListOptions{}, nil
	}
	opts := metav1.ListOptions{
		LabelSelector:        q.Get("labelSelector"),
		FieldSelector:        q.Get("fieldSelector"),
		AllowWatchBookmarks:  isTrue(q, "allowWatchBookmarks"),
		ResourceVersion:      q.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		Continue:             q.Get("continue"),
	}
	limit, err := number(q, "limit")
	if err != nil {
		return opts, err
	}
	if limit != nil {
		opts.Limit = *limit
	}
	if opts.TimeoutSeconds, err = number(q, "timeoutSeconds"); err != nil {
		return opts, err
	}
	if q.Has("sendInitialEvents") {
		send := isTrue(q, "sendInitialEvents")
		opts.SendInitialEvents = &send
	}
	return opts, nil
}

// deleteOptions reads the parameters of a DELETE into opts, which the body filled.
// Kubernetes reads the URL only if there is no body.
func deleteOptions(q url.Values, opts *metav1.DeleteOptions) error {
	if q == nil {
		return nil
	}
	opts.DryRun = q["dryRun"]
	var err error
	if opts.GracePeriodSeconds, err = number(q, "gracePeriodSeconds"); err != nil {
		return err
	}
	if p := q.Get("propagationPolicy"); p != "" {
		policy := metav1.DeletionPropagation(p)
		opts.PropagationPolicy = &policy
	}
	if q.Has("orphanDependents") {
		orphan := isTrue(q, "orphanDependents")
		opts.OrphanDependents = &orphan
	}
	return nil
}
