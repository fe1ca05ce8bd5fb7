package codec_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sampan-io/sampan/apiserver/codec"
)

func TestDeepDocumentsAreRefused(t *testing.T) {
	for _, c := range []struct {
		depth int
		fails bool
	}{{97, false}, {98, true}, {1 << 20, true}} {
		body := `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"\\\"{"},"data":` + strings.Repeat(`{"a":`, c.depth) + `[{}]` + strings.Repeat("}", c.depth) + `}`
		_, err := codec.Decode(t.Context(), codec.JSON, []byte(body), &appsv1.ControllerRevision{}, appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), codec.Ignore)
		if got := err != nil && strings.Contains(err.Error(), "the document is nested more than 100 levels deep"); got != c.fails || !c.fails && err != nil {
			t.Errorf("%d levels: %v", c.depth, err)
		}
	}
}
