package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// customs measures durable creations of custom resources with twenty fields and three rules, beside those of ConfigMaps of
// the same size, and what an admission policy with one expression adds to a creation.
func (b *bench) customs(ctx context.Context) error {
	ours, err := b.ours()
	if err != nil {
		return err
	}
	crd, err := definition("example.com", 20, []string{
		"self.field01 <= self.field05", "self.field00.startsWith('some')", "self.field02.all(item, size(item) < 64)",
	})
	if err != nil {
		return err
	}
	if _, err := ours.establish(ctx, "widgets.example.com", crd); err != nil {
		return err
	}
	widget, plain, err := widgetAndConfigMap()
	if err != nil {
		return err
	}
	const path = "/apis/example.com/v1/namespaces/default/widgets"
	var rates, cpus [2][]float64
	for i := range turns + 1 {
		for k, t := range []struct {
			path string
			body []byte
		}{{path, widget}, {configMapsPath, plain}} {
			t, err := ours.load(ctx, t.path, t.body)
			if err != nil {
				return err
			}
			if i > 0 { // the first turn warms up
				rates[k], cpus[k] = append(rates[k], t.rate), append(cpus[k], t.cpu)
			}
		}
	}
	b.row("durable create of a custom resource, 20 fields, three rules, 32 clients; floor: a ConfigMap of the same size",
		fmt.Sprintf("%.0f/s", median(rates[0])), fmt.Sprintf("%.0f/s", median(rates[1])), fmt.Sprintf("%.2f", median(rates[0])/median(rates[1])), ">= 5,000/s")
	b.row("  CPU of the server for one", fmt.Sprintf("%.0f µs", median(cpus[0])), fmt.Sprintf("%.0f µs", median(cpus[1])), fmt.Sprintf("%.2f", median(cpus[0])/median(cpus[1])), "")
	return b.policy(ctx, ours, plain)
}

// widgetAndConfigMap returns a widget whose spec has twenty fields, and a ConfigMap of the same size.
func widgetAndConfigMap() (widget, plain []byte, err error) {
	spec := map[string]any{}
	for n := range 20 {
		spec[fmt.Sprintf("field%02d", n)] = []any{"some text", n, []any{"one", "two"}, map[string]any{"name": "some", "value": "thing"}}[n%4]
	}
	widget, err = json.Marshal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"generateName": "w-"}, "spec": spec,
	})
	if err != nil {
		return nil, nil, err
	}
	data := map[string]any{}
	for n := range 20 {
		data[fmt.Sprintf("field%02d", n)] = strings.Repeat("x", len(widget)/20-12)
	}
	plain, err = json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "c-"}, "data": data,
	})
	return widget, plain, err
}

// policy prints what a policy with one expression adds to the creation of a ConfigMap.
func (b *bench) policy(ctx context.Context, ours *server, plain []byte) error {
	const group = "/apis/admissionregistration.k8s.io/v1/"
	const bindings = group + "validatingadmissionpolicybindings"
	policy, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "few"},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE"},
			}}},
			"validations": []any{map[string]any{"expression": "!has(object.data) || object.data.size() < 100"}},
		},
	})
	if err != nil {
		return err
	}
	binding, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": "few"},
		"spec": map[string]any{"policyName": "few", "validationActions": []any{"Deny"}},
	})
	if err != nil {
		return err
	}
	if _, err := ours.send(ctx, group+"validatingadmissionpolicies", "", policy); err != nil {
		return err
	}
	var with, without []float64
	for i := range 2*turns + 1 {
		if _, err := ours.send(ctx, bindings, "", binding); err != nil {
			return err
		}
		bound, err := ours.load(ctx, configMapsPath, plain)
		if err != nil {
			return err
		}
		if err := ours.remove(ctx, bindings+"/few"); err != nil {
			return err
		}
		free, err := ours.load(ctx, configMapsPath, plain)
		if err != nil {
			return err
		}
		if i > 0 { // the first turn warms up
			with, without = append(with, bound.cpu), append(without, free.cpu)
		}
	}
	b.row("CPU of the server for a create with a policy of one expression", fmt.Sprintf("%.0f µs", median(with)), fmt.Sprintf("%.0f µs", median(without)),
		fmt.Sprintf("%.2f", median(with)/median(without)), "<= 30 µs more")
	return nil
}
