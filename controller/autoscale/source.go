package autoscale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	stdpath "path"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetrics "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/client"
)

// A Raw makes requests for documents: those of discovery, and metrics that are not objects. Its user is that of the client
// beside it. [client.REST] is one.
type Raw interface {
	Do(ctx context.Context, r client.RawRequest) (*http.Response, error)
}

// A source reads scales and metrics.
type source struct {
	client client.Interface
	raw    Raw
}

// maxDocument bounds a document: far above the metrics of all pods of a large target.
const maxDocument = 64 << 20

// get reads the document at a path into out. Segments of the path may come from users: one that would lead to another path
// is an error.
func (s source) get(ctx context.Context, path string, query url.Values, out any) error {
	if stdpath.Clean(path) != path {
		return fmt.Errorf("reading %s: not a path of the API", path)
	}
	resp, err := s.raw.Do(ctx, client.RawRequest{Path: path, Query: query, Accept: "application/json"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("the answer is longer than %d bytes", maxDocument)
	}
	if err == nil {
		err = json.Unmarshal(body, out)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// group returns the versions of a group that the server serves, the preferred one first; none if it has no such group.
func (s source) group(ctx context.Context, name string) ([]string, error) {
	if name == "" {
		return []string{"v1"}, nil
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil // and it could lead to another path
	}
	var g metav1.APIGroup
	switch err := s.get(ctx, "/apis/"+name, nil, &g); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var versions []string
	if g.PreferredVersion.Version != "" {
		versions = append(versions, g.PreferredVersion.Version)
	}
	for _, v := range g.Versions {
		if v.Version != g.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}

// A served is a resource that the server serves, and whether it has scales.
type served struct {
	schema.GroupVersionResource
	scales bool
}

// resources returns the resources of a kind, in all versions that are served.
func (s source) resources(ctx context.Context, kind schema.GroupKind) ([]served, error) {
	versions, err := s.group(ctx, kind.Group)
	if err != nil {
		return nil, err
	}
	var found []served
	for _, v := range versions {
		path := "/apis/" + kind.Group + "/" + v
		if kind.Group == "" {
			path = "/api/" + v
		}
		var list metav1.APIResourceList
		switch err := s.get(ctx, path, nil, &list); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		}
		for _, r := range list.APIResources {
			if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
				scale := func(sub metav1.APIResource) bool { return sub.Name == r.Name+"/scale" }
				found = append(found, served{
					schema.GroupVersionResource{Group: kind.Group, Version: v, Resource: r.Name}, slices.ContainsFunc(list.APIResources, scale),
				})
			}
		}
	}
	if len(found) == 0 {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return found, nil
}

// scale returns the scale of the target of an autoscaler, and the resource that has it.
func (s source) scale(ctx context.Context, namespace string, target autoscalingv2.CrossVersionObjectReference) (*autoscalingv1.Scale, schema.GroupVersionResource, error) {
	var none schema.GroupVersionResource
	gv, err := schema.ParseGroupVersion(target.APIVersion)
	if err != nil {
		return nil, none, err
	}
	resources, err := s.resources(ctx, schema.GroupKind{Group: gv.Group, Kind: target.Kind})
	if err != nil {
		return nil, none, err
	}
	var first error
	for _, r := range resources {
		var scale *autoscalingv1.Scale
		err := error(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true))
		if r.scales {
			scale, err = as[autoscalingv1.Scale](s.client.Get(ctx, r.GroupVersionResource, namespace, target.Name, "scale"))
		}
		if err == nil {
			return scale.DeepCopy(), r.GroupVersionResource, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, none, first
}

// as returns an object as a *T, which a client may return as the Go type or unstructured.
func as[T any](obj runtime.Object, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	if t, ok := any(obj).(*T); ok {
		return t, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, out); err != nil {
		return nil, err
	}
	return out, nil
}

// read reads one metric of an autoscaler, whose target has the pods of a selector.
func (s source) read(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, spec *autoscalingv2.MetricSpec, pods labels.Selector) reading {
	var r reading
	var err error
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		r, err = s.resource(ctx, a.Namespace, pods, spec.Resource.Name, "")
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		r, err = s.resource(ctx, a.Namespace, pods, spec.ContainerResource.Name, spec.ContainerResource.Container)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		r, err = s.ofPods(ctx, a.Namespace, pods, spec.Pods.Metric)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		r, err = s.ofObject(ctx, a.Namespace, spec.Object)
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		r, err = s.external(ctx, a.Namespace, spec.External.Metric)
	default:
		err = errReading
	}
	if err != nil {
		return failedReading{err}
	}
	return r
}

// resource reads the use of a resource from metrics.k8s.io.
func (s source) resource(ctx context.Context, namespace string, pods labels.Selector, name corev1.ResourceName, container string) (podReading, error) {
	objs, _, err := s.client.List(ctx, metricsv1beta1.SchemeGroupVersion.WithResource("pods"), namespace, metav1.ListOptions{LabelSelector: pods.String()})
	if err != nil {
		err = fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	} else if len(objs) == 0 {
		err = errors.New("no metrics returned from resource metrics API")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	out := podReading{}
	for _, obj := range objs {
		m, err := as[metricsv1beta1.PodMetrics](obj, nil)
		if err != nil {
			return nil, fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
		}
		if v, ok := usageOf(m, name, container); ok {
			out[m.Name] = podMetric{m.Timestamp.Time, m.Window.Duration, v}
		}
	}
	return out, nil
}

// usageOf returns the use of a resource by all containers of a pod, which must all say, or by one.
func usageOf(m *metricsv1beta1.PodMetrics, name corev1.ResourceName, container string) (sum int64, ok bool) {
	for _, c := range m.Containers {
		q, said := c.Usage[name]
		switch {
		case container == c.Name && said:
			return q.MilliValue(), true
		case container != "":
			continue
		case !said:
			return 0, false
		}
		sum += q.MilliValue()
	}
	return sum, container == "" && len(m.Containers) > 0
}

// defaultMetricWindow is the window of a custom metric of a pod that does not name one.
const defaultMetricWindow = time.Minute

func (s source) ofPods(ctx context.Context, namespace string, pods labels.Selector, id autoscalingv2.MetricIdentifier) (podReading, error) {
	selector, err := metav1.LabelSelectorAsSelector(id.Selector)
	if err != nil {
		return nil, err
	}
	list, err := s.custom(ctx, namespace, "pods/*", id.Name, pods, selector)
	if err == nil && len(list.Items) == 0 {
		err = errors.New("no metrics returned from custom metrics API")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s: %w", id.Name, err)
	}
	out := podReading{}
	for i := range list.Items {
		m := &list.Items[i]
		window := defaultMetricWindow
		if m.WindowSeconds != nil {
			window = time.Duration(*m.WindowSeconds) * time.Second
		}
		out[m.DescribedObject.Name] = podMetric{m.Timestamp.Time, window, m.Value.MilliValue()}
	}
	return out, nil
}

func (s source) ofObject(ctx context.Context, namespace string, o *autoscalingv2.ObjectMetricSource) (valueReading, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.Metric.Selector)
	if err != nil {
		return nil, err
	}
	value, err := s.objectValue(ctx, namespace, o, selector)
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s on %s %s/%s: %w", o.Metric.Name, o.DescribedObject.Kind, namespace, o.DescribedObject.Name, err)
	}
	return valueReading{value}, nil
}

func (s source) objectValue(ctx context.Context, namespace string, o *autoscalingv2.ObjectMetricSource, selector labels.Selector) (int64, error) {
	gv, err := schema.ParseGroupVersion(o.DescribedObject.APIVersion)
	if err != nil {
		return 0, err
	}
	kind := schema.GroupKind{Group: gv.Group, Kind: o.DescribedObject.Kind}
	object := "metrics" // of the namespace itself, which can only be that of the autoscaler
	if kind != (schema.GroupKind{Kind: "Namespace"}) {
		resources, err := s.resources(ctx, kind)
		if err != nil {
			return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
		}
		object = resources[0].GroupResource().String() + "/" + o.DescribedObject.Name
	}
	list, err := s.custom(ctx, namespace, object, o.Metric.Name, nil, selector)
	if err != nil {
		return 0, err
	}
	if len(list.Items) != 1 {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: the custom metrics API server returned %d results when we asked for exactly one", len(list.Items))
	}
	return list.Items[0].Value.MilliValue(), nil
}

// custom reads a metric of objects, which the path names, from custom.metrics.k8s.io. Both versions of that API have the fields
// that are used here.
func (s source) custom(ctx context.Context, namespace, objects, metric string, pods, selector labels.Selector) (*custommetrics.MetricValueList, error) {
	const group = custommetrics.GroupName
	versions, err := s.group(ctx, group)
	if err == nil && len(versions) == 0 {
		err = fmt.Errorf("no custom metrics API (%s) registered", group)
	}
	list := &custommetrics.MetricValueList{}
	if err == nil {
		query := url.Values{}
		for name, sel := range map[string]labels.Selector{"labelSelector": pods, "metricLabelSelector": selector} {
			if sel != nil && !sel.Empty() {
				query.Set(name, sel.String())
			}
		}
		err = s.get(ctx, "/apis/"+group+"/"+versions[0]+"/namespaces/"+namespace+"/"+objects+"/"+metric, query, list)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return list, nil
}

// external reads a metric from external.metrics.k8s.io.
func (s source) external(ctx context.Context, namespace string, id autoscalingv2.MetricIdentifier) (valueReading, error) {
	selector, err := metav1.LabelSelectorAsSelector(id.Selector)
	if err != nil {
		return nil, err
	}
	list := &externalmetrics.ExternalMetricValueList{}
	query := url.Values{}
	if !selector.Empty() {
		query.Set("labelSelector", selector.String())
	}
	gv := externalmetrics.SchemeGroupVersion
	err = s.get(ctx, "/apis/"+gv.String()+"/namespaces/"+namespace+"/"+id.Name, query, list)
	switch {
	case apierrors.IsNotFound(err):
		err = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Group: gv.Group, Resource: id.Name}, "", "", 0, true)
		fallthrough
	case err != nil:
		err = fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	case len(list.Items) == 0:
		err = errors.New("no metrics returned from external metrics API")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to get external metric %s/%s/%+v: %w", namespace, id.Name, id.Selector, err)
	}
	var out valueReading
	for i := range list.Items {
		out = append(out, list.Items[i].Value.MilliValue())
	}
	return out, nil
}
