package aggregation

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSwaggerOfHostileServers has documents that must not replace what was known, and one that does.
func TestSwaggerOfHostileServers(t *testing.T) {
	gv := schema.GroupVersion{Group: "sea.example.com", Version: "v1"}
	document := func(definition string) string {
		return `{"swagger":"2.0","paths":{"/apis/sea.example.com/v1/whales":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/W"}}}}}},"definitions":{"W":` + definition + `}}`
	}
	deep := strings.Repeat(`{"properties":{"a":`, 5_000) + `{}` + strings.Repeat("}}", 5_000)
	before := &Swagger{JSON: []byte("{}"), Hash: "before"}
	for name, tt := range map[string]struct {
		code int
		body string
		want func(*Swagger) bool
	}{
		"good":         {200, document(`{"type":"object","description":"{[\"{["}`), func(s *Swagger) bool { return s != before && strings.Contains(string(s.JSON), "/whales") }},
		"deep":         {200, document(deep), func(s *Swagger) bool { return s == before }},
		"large":        {200, document(`{"description":"` + strings.Repeat("x", largestSwagger) + `"}`), func(s *Swagger) bool { return s == before }},
		"no JSON":      {200, "<html>", func(s *Swagger) bool { return s == before }},
		"nulls":        {200, `{"paths":null,"definitions":null}`, func(s *Swagger) bool { return s == before }},
		"other types":  {200, `{"paths":[1],"definitions":7}`, func(s *Swagger) bool { return s == before }},
		"a fault":      {500, "", func(s *Swagger) bool { return s == before }},
		"no document":  {404, "", func(s *Swagger) bool { return s == nil }},
		"not modified": {304, "", func(s *Swagger) bool { return s == before }},
	} {
		if got, _ := swagger(&reply{code: tt.code, body: []byte(tt.body)}, gv, before, `"1"`); !tt.want(got) {
			t.Errorf("%s: %v", name, got)
		}
	}
	// A server without tags: the same document is not read again.
	answer := &reply{code: http.StatusOK, body: []byte(document(`{}`))}
	first, tag := swagger(answer, gv, nil, "")
	if again, same := swagger(answer, gv, first, tag); again != first || same != tag || asked(tag).Get("If-None-Match") != "" {
		t.Errorf("the document was read again: %v", again)
	}
}
