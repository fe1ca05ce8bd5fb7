package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/changes"
)

// momentOf returns the text of --at. A duration before now becomes a time, so that all requests are about the same one.
func momentOf(at string, now time.Time) string {
	if ago, err := time.ParseDuration(at); err == nil && ago > 0 {
		return now.Add(-ago).UTC().Format(time.RFC3339Nano)
	}
	return at
}

// knowsPast returns an error if the server answered with the present state, because it does not know earlier ones.
func (c *get) knowsPast(resp *http.Response) error {
	if c.at != "" && resp.Header.Get(changes.AtHeader) == "" {
		return errors.New("--at: the server does not know earlier states of these objects, as clusters of `sampan up --history=24h` do")
	}
	return nil
}

// earlier returns the objects of a selection, or the named object, as they were at --at. The server sends all of them in one part.
func (c *get) earlier(ctx context.Context, s *session.Session, i resource.Info) ([]runtime.Object, error) {
	query := selection(i.Labels, i.Fields, 0, "")
	query.Set("at", c.at)
	at := i.Mapping.Path(i.Namespace, i.Name)
	if c.subresource != "" {
		at += "/" + url.PathEscape(c.subresource)
	}
	resp, err := s.Do(ctx, client.RawRequest{Path: at, Query: query, Accept: "application/json"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := c.knowsPast(resp); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	var obj runtime.Object
	if err == nil {
		obj, err = runtime.Decode(unstructured.UnstructuredJSONScheme, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", i.Mapping.Resource, err)
	}
	list, ok := obj.(*unstructured.UnstructuredList)
	if !ok {
		return c.forWrites([]runtime.Object{obj}), nil
	}
	all := make([]runtime.Object, len(list.Items))
	for n := range list.Items {
		all[n] = &list.Items[n]
	}
	return c.forWrites(all), nil
}

// forWrites takes the resource version and the UID from objects that are printed whole, which can then be written again
// with replace, apply or create. With them it would be a conflict.
func (c *get) forWrites(objs []runtime.Object) []runtime.Object {
	if c.Output != "yaml" && c.Output != "json" {
		return objs
	}
	for _, o := range objs {
		if u, ok := o.(*unstructured.Unstructured); ok {
			unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
			unstructured.RemoveNestedField(u.Object, "metadata", "uid")
		}
	}
	return objs
}
