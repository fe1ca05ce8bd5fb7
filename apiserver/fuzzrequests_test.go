package apiserver_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/hangtest"
	"github.com/sampan-io/sampan/store"
)

// FuzzRequests sends requests with any body, media type and parameters to the collection and to one object of each kind: each
// has an answer in time, and none is an error of the server.
func FuzzRequests(f *testing.F) {
	c := apiservertest.Kinds(f)
	kinds := slices.SortedFunc(slices.Values(c.Kinds()), func(a, b *catalog.Kind) int {
		return strings.Compare(a.GroupVersionKind.String(), b.GroupVersionKind.String())
	})
	number := func(resource string) uint8 {
		return uint8(slices.IndexFunc(kinds, func(k *catalog.Kind) bool { return k.Resource == resource }))
	}
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	media := []string{codec.TypeJSON, codec.TypeYAML, codec.TypeProtobuf, string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType), "application/cbor", ""}
	st := memory(f, store.Options{})
	server, err := apiserver.New(options(f, st))
	if err != nil {
		f.Fatal(err)
	}
	for kind, objs := range examples(f, c) {
		body, err := json.Marshal(objs[0])
		if err != nil {
			f.Fatal(err)
		}
		for method := range methods {
			f.Add(uint8(method), uint8(slices.Index(kinds, kind)), uint8(0), "fieldManager=a&fieldValidation=Strict", body)
		}
		f.Add(uint8(3), uint8(slices.Index(kinds, kind)), uint8(6), "fieldManager=a&force=true", body)
	}
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"1e9999"},"spec":{"containers":[x`, `[{"op":"add","path":"","value":{}}]`, "null", "[]", "a: &a [*a]", "{}", "",
	} {
		for i := range media {
			f.Add(uint8(3), number("pods"), uint8(i), "fieldManager=a", []byte(text))
			f.Add(uint8(1), number("customresourcedefinitions"), uint8(i), "", []byte(text))
		}
	}
	for _, query := range []string{
		"labelSelector=a in (b,c),!d,e notin (f)&limit=1", "fieldSelector=metadata.name!=a,spec.x=y", "continue=x&limit=0", "resourceVersion=x",
		"until=any:object.a%3D%3D1&timeoutSeconds=0", "until=all:self.metadata.name.matches('a*')&untilMissing=done&timeoutSeconds=0", "includeObject=None", "timeout=0s", "timeout=1e9h",
		"propagationPolicy=x&gracePeriodSeconds=-1", "resourceVersionMatch=Exact&resourceVersion=1", "pretty=1", "%zz", "dryRun=All&dryRun=x",
	} {
		f.Add(uint8(0), number("pods"), uint8(0), query, []byte(nil))
		f.Add(uint8(4), number("pods"), uint8(0), query, []byte(nil))
	}
	f.Fuzz(func(t *testing.T, method, kind, form uint8, query string, body []byte) {
		defer hangtest.Guard(t)()
		if q, _ := url.ParseQuery(query); q.Has("watch") || (q.Has("until") || q.Has("untilMissing")) && q.Get("timeoutSeconds") != "0" {
			return // these may wait
		}
		p := &prober{TB: t, server: server, store: st, loader: apiserver.NewLoader(c), kind: kinds[int(kind)%len(kinds)], body: body}
		path := p.collection()
		if m := methods[int(method)%len(methods)]; m == "PUT" || m == "PATCH" || method >= 128 {
			path += "/a"
		}
		target := url.URL{Path: path, RawQuery: strings.ReplaceAll(query, " ", "+")}
		if _, err := url.ParseRequestURI(target.RequestURI()); err != nil {
			return
		}
		p.do(methods[int(method)%len(methods)], target.RequestURI(), media[int(form)%len(media)], []string{"application/json", forms[4], codec.TypeProtobuf}[int(form)%3], body)
	})
}
