package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	manyDefinitions = 1000
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	configMapsPath  = "/api/v1/namespaces/default/configmaps"
)

// definitions measures 1,000 definitions of custom resources, each with a group of its own and about 14 KB of JSON, the
// median of those in widely used projects: their creation, their memory, the start of the server with them, and the
// discovery and OpenAPI documents. The floors are ConfigMaps of the same size, a start without definitions, and the
// same bytes from the bare server.
func (b *bench) definitions(ctx context.Context) error {
	bare, err := startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.stop()
	emptyStart, err := b.restart(ctx)
	if err != nil {
		return err
	}
	ours, err := b.ours()
	if err != nil {
		return err
	}
	if err := b.defineMany(ctx, ours); err != nil {
		return err
	}
	start, err := b.restart(ctx)
	if err != nil {
		return err
	}
	b.against("later start with 1,000 definitions", start, emptyStart, "<= 2 s")
	if ours, err = b.ours(); err != nil {
		return err
	}
	for _, d := range []struct{ what, path, accept, goal string }{
		{"discovery", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "<= 50 ms"},
		{"index of OpenAPI v3", "/openapi/v3", "", "<= 100 ms"},
		{"OpenAPI v2", "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", ""},
	} {
		if err := b.document(ctx, ours, bare, d.what, d.path, d.accept, d.goal); err != nil {
			return err
		}
	}
	return b.published(ctx, ours)
}

// restart ends the server and returns how long it takes to start again.
func (b *bench) restart(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range 3 {
		if _, err := b.sampan(ctx, "down"); err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := b.sampan(ctx, "up"); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), nil
}

// defineMany creates the definitions, one after the other.
func (b *bench) defineMany(ctx context.Context, ours *server) error {
	before, err := b.serverMemory()
	if err != nil {
		return err
	}
	var got, floor []time.Duration
	for n := range manyDefinitions {
		body, err := definition(fmt.Sprintf("g%d.example.com", n), 60, nil)
		if err != nil {
			return err
		}
		took, err := ours.establish(ctx, fmt.Sprintf("widgets.g%d.example.com", n), body)
		if err != nil {
			return err
		}
		got = append(got, took)
		if n%20 > 0 {
			continue
		}
		plain, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "c-"}, "data": map[string]any{"text": string(body)},
		})
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := ours.send(ctx, configMapsPath, "", plain); err != nil {
			return err
		}
		floor = append(floor, time.Since(began))
	}
	b.against("definition created and established, p50", median(got), median(floor), "<= 20 ms")
	b.against("definition created and established, p99", quantile(got, 0.99), quantile(floor, 0.99), "")
	if err := pause(ctx, 10*time.Second); err != nil { // as before "idle"
		return err
	}
	after, err := b.serverMemory()
	if err != nil {
		return err
	}
	b.row("memory of a definition (PSS)", fmt.Sprintf("%d KiB", (after-before)/manyDefinitions>>10), "", "", "<= 100 KiB")
	return nil
}

// establish creates a definition and returns how long it takes until it is established.
func (s *server) establish(ctx context.Context, name string, body []byte) (time.Duration, error) {
	began := time.Now()
	if _, err := s.send(ctx, definitionsPath, "", body); err != nil {
		return 0, err
	}
	for {
		data, err := s.read(ctx, definitionsPath+"/"+name, "")
		if err != nil {
			return 0, err
		}
		var d struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if err := json.Unmarshal(data, &d); err != nil {
			return 0, err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == "Established" && c.Status == "True" {
				return time.Since(began), nil
			}
		}
	}
}

// read returns the answer to a GET.
func (s *server) read(ctx context.Context, path, accept string) ([]byte, error) {
	resp, err := s.ask(ctx, s.client, path, accept, nil)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(resp.Body)
	return data, errors.Join(err, resp.Body.Close())
}

// document prints how long the first and later answers of one document take.
func (b *bench) document(ctx context.Context, ours *server, bare *bareServer, what, path, accept, goal string) error {
	first, _, size, err := ours.timed(ctx, path, accept)
	if err != nil {
		return err
	}
	var later, floor []time.Duration
	for range 3 * turns {
		took, _, _, err := ours.timed(ctx, path, accept)
		if err != nil {
			return err
		}
		least, _, _, err := bare.timed(ctx, "/?size="+strconv.FormatInt(size, 10), "")
		if err != nil {
			return err
		}
		later, floor = append(later, took), append(floor, least)
	}
	b.against(fmt.Sprintf("%s with 1,000 definitions (%.1f MB), the first after a start", what, float64(size)/1e6), first, median(floor), goal)
	b.against("  later ones, p50", median(later), median(floor), goal)
	return nil
}

// published prints how long after a definition is established its resource is in the documents.
func (b *bench) published(ctx context.Context, ours *server) error {
	var index, document, older []time.Duration
	for n := range 5 {
		group := fmt.Sprintf("new%d.example.com", n)
		body, err := definition(group, 60, nil)
		if err != nil {
			return err
		}
		if _, err := ours.establish(ctx, "widgets."+group, body); err != nil {
			return err
		}
		for _, d := range []struct {
			path string
			into *[]time.Duration
		}{{"/openapi/v3", &index}, {"/openapi/v3/apis/" + group + "/v1", &document}, {"/openapi/v2", &older}} {
			began := time.Now()
			data, err := ours.read(ctx, d.path, "")
			if err != nil {
				return err
			}
			if *d.into = append(*d.into, time.Since(began)); !strings.Contains(string(data), group) {
				return fmt.Errorf("%s does not name the group %s, which is established", d.path, group)
			}
		}
	}
	b.row("index of OpenAPI v3 after a new definition, p50", ms(median(index)), "", "", "<= 100 ms")
	b.row("  its document", ms(median(document)), "", "", "<= 100 ms")
	b.row("OpenAPI v2 after a new definition, p50", ms(median(older)), "", "", "<= 100 ms")
	return nil
}

// definition returns the definition of widgets in a group, whose spec has that many fields and rules.
func definition(group string, fields int, rules []string) ([]byte, error) {
	const text = "describes one of the settings of a widget. It has a sentence or two, as the fields of most resources have. Defaults to nothing."
	properties := map[string]any{}
	for n := range fields {
		p := map[string]any{"description": fmt.Sprintf("Field %d %s", n, text)}
		switch n % 4 {
		case 0:
			p["type"] = "string"
		case 1:
			p["type"], p["minimum"] = "integer", 0
		case 2:
			p["type"], p["maxItems"], p["items"] = "array", 10, map[string]any{"type": "string"}
		case 3:
			p["type"], p["properties"] = "object", map[string]any{
				"name":  map[string]any{"type": "string", "maxLength": 63, "description": "Name " + text},
				"value": map[string]any{"type": "string"},
			}
		}
		properties[fmt.Sprintf("field%02d", n)] = p
	}
	spec := map[string]any{"type": "object", "description": "Spec " + text, "properties": properties}
	var validations []any
	for _, r := range rules {
		validations = append(validations, map[string]any{"rule": r})
	}
	if validations != nil {
		spec["x-kubernetes-validations"] = validations
	}
	return json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "description": "A widget " + text,
					"properties": map[string]any{"spec": spec, "status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			}},
		},
	})
}

// remove deletes an object.
func (s *server) remove(ctx context.Context, path string) error {
	resp, err := s.do(ctx, s.client, http.MethodDelete, path, "", "application/json", nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
