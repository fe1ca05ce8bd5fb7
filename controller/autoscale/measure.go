package autoscale

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A reading is the value of one metric: a [podReading], a [valueReading] or a [failedReading].
type reading interface{ isReading() }

// A podReading has the values of a metric of pods, by their names.
type podReading map[string]podMetric

// A valueReading has the values of a metric of an object, which is one, or of an external one. They are in thousandths.
type valueReading []int64

// A failedReading says why a metric could not be read.
type failedReading struct{ err error }

func (podReading) isReading()    {}
func (valueReading) isReading()  {}
func (failedReading) isReading() {}

var errReading = errors.New("the metric was read as one of another type")

// podsOf returns the values of a metric of pods.
func podsOf(r reading) (podReading, error) {
	switch r := r.(type) {
	case podReading:
		return r, nil
	case failedReading:
		return nil, r.err
	}
	return nil, errReading
}

// valuesOf returns the values of a metric that is not one of pods.
func valuesOf(r reading) (valueReading, error) {
	switch r := r.(type) {
	case valueReading:
		return r, nil
	case failedReading:
		return nil, r.err
	}
	return nil, errReading
}

// A proposal is the recommendation of one metric.
type proposal struct {
	replicas int32
	name     string // of the metric, for people
	status   autoscalingv2.MetricStatus
}

// An unusable is a metric that no replicas can be computed from.
type unusable struct {
	reason string // of the condition and the event
	cause  error  // in the same
	err    error  // the cause, and more words around it, for the event of the whole decision
}

func unusableMetric(reason string, cause error, format string, args ...any) *unusable {
	return &unusable{reason, cause, fmt.Errorf(format, append(args, cause)...)}
}

// A measurement computes the proposals of the metrics of one autoscaler.
type measurement struct {
	calculation
	present int32 // replicas that the target has
}

// propose returns the proposal of a metric.
func (m measurement) propose(spec *autoscalingv2.MetricSpec, r reading) (proposal, *unusable) {
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		s := spec.Resource
		p, current, err := m.ofResource(s.Name, "", s.Target, r)
		if err != nil {
			return p, unusableMetric("FailedGetResourceMetric", err, "failed to get %s resource metric value: %w", s.Name)
		}
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: current}}
		return p, nil
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		s := spec.ContainerResource
		p, current, err := m.ofResource(s.Name, s.Container, s.Target, r)
		if err != nil {
			return p, unusableMetric("FailedGetContainerResourceMetric", err, "failed to get %s container metric value: %w", s.Container)
		}
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: s.Name, Container: s.Container, Current: current}}
		return p, nil
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil && spec.Pods.Target.AverageValue != nil:
		p, err := m.ofPods(spec.Pods, r)
		if err != nil {
			return p, unusableMetric("FailedGetPodsMetric", err, "failed to get pods metric value: %w")
		}
		return p, nil
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return m.ofObject(spec.Object, r)
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return m.ofExternal(spec.External, r)
	}
	err := fmt.Errorf("unknown metric source type %q", string(spec.Type))
	return proposal{}, &unusable{"InvalidMetricSourceType", err, err}
}

// ofResource computes from the use of a resource by pods, or by one container of each.
func (m measurement) ofResource(name corev1.ResourceName, container string, target autoscalingv2.MetricTarget, r reading) (p proposal, current autoscalingv2.MetricValueStatus, err error) {
	format := resource.DecimalSI
	if name == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	m.resource = name
	switch {
	case target.AverageValue != nil:
		g := &average{target: target.AverageValue.MilliValue()}
		if m.metrics, err = podsOf(r); err == nil {
			p.replicas, err = m.replicas(g)
		}
		if err != nil {
			return p, current, fmt.Errorf("failed to get %s usage: %w", name, err)
		}
		p.name = fmt.Sprintf("%s resource", name)
		current.AverageValue = resource.NewMilliQuantity(g.now, format)
	case target.AverageUtilization != nil:
		g := &utilization{target: *target.AverageUtilization, container: container, resource: name}
		if m.metrics, err = podsOf(r); err == nil {
			p.replicas, err = m.replicas(g)
		}
		if err != nil {
			return p, current, fmt.Errorf("failed to get %s utilization: %w", name, err)
		}
		p.name = fmt.Sprintf("%s resource utilization (percentage of request)", name)
		if container != "" {
			p.name = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
		}
		current.AverageUtilization, current.AverageValue = &g.percent, resource.NewMilliQuantity(g.mean, format)
	default:
		return p, current, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	return p, current, nil
}

func (m measurement) ofPods(s *autoscalingv2.PodsMetricSource, r reading) (p proposal, err error) {
	g := &average{target: s.Target.AverageValue.MilliValue()}
	if m.metrics, err = podsOf(r); err == nil {
		p.replicas, err = m.replicas(g)
	}
	if err != nil {
		return p, err
	}
	p.name = "pods metric " + s.Metric.Name
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
		Metric: s.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: milli(g.now)},
	}}
	return p, nil
}

func milli(v int64) *resource.Quantity { return resource.NewMilliQuantity(v, resource.DecimalSI) }

func (m measurement) ofObject(s *autoscalingv2.ObjectMetricSource, r reading) (p proposal, _ *unusable) {
	const reason, words = "FailedGetObjectMetric", "failed to get object metric value: "
	status := &autoscalingv2.ObjectMetricStatus{DescribedObject: s.DescribedObject, Metric: s.Metric}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: status}
	values, err := valuesOf(r)
	switch {
	case s.Target.Type == autoscalingv2.ValueMetricType && s.Target.Value != nil:
		if err == nil {
			p.replicas, err = m.byValue(total(values), s.Target.Value.MilliValue())
		}
		if err != nil {
			return p, unusableMetric(reason, err, words+"%w")
		}
		status.Current.Value = milli(total(values))
		p.name = fmt.Sprintf("%s metric %s", s.DescribedObject.Kind, s.Metric.Name)
	case s.Target.Type == autoscalingv2.AverageValueMetricType && s.Target.AverageValue != nil:
		if err != nil {
			return p, unusableMetric(reason, err, words+"failed to get %s object metric: %w", s.Metric.Name)
		}
		var share int64
		p.replicas, share = m.byShare(total(values), s.Target.AverageValue.MilliValue(), m.present)
		status.Current.AverageValue = milli(share)
		p.name = fmt.Sprintf("external metric %s(%+v)", s.Metric.Name, s.Metric.Selector)
	default:
		err = errors.New("invalid object metric source: neither a value target nor an average value target was set")
		return p, unusableMetric(reason, err, words+"%w")
	}
	return p, nil
}

func (m measurement) ofExternal(s *autoscalingv2.ExternalMetricSource, r reading) (p proposal, _ *unusable) {
	const reason, words = "FailedGetExternalMetric", "failed to get %[1]s external metric value: "
	status := &autoscalingv2.ExternalMetricStatus{Metric: s.Metric}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: status}
	p.name = fmt.Sprintf("external metric %s(%+v)", s.Metric.Name, s.Metric.Selector)
	values, err := valuesOf(r)
	switch {
	case s.Target.AverageValue != nil:
		if err != nil {
			return p, unusableMetric(reason, err, words+"failed to get %[1]s external metric: %[2]w", s.Metric.Name)
		}
		var share int64
		p.replicas, share = m.byShare(total(values), s.Target.AverageValue.MilliValue(), m.present)
		status.Current.AverageValue = milli(share)
	case s.Target.Value != nil:
		if err == nil {
			p.replicas, err = m.byValue(total(values), s.Target.Value.MilliValue())
		}
		if err != nil {
			return p, unusableMetric(reason, err, words+"failed to get external metric %[1]s: %[2]w", s.Metric.Name)
		}
		status.Current.Value = milli(total(values))
	default:
		err = errors.New("invalid external metric source: neither a value target nor an average value target was set")
		return p, unusableMetric(reason, err, words+"%[2]w", s.Metric.Name)
	}
	return p, nil
}
