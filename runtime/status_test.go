package runtime

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVersionIsSemantic reads the version as upstream's kubelet does.
func TestVersionIsSemantic(t *testing.T) {
	for build, want := range map[string]string{
		"v1.2.3":             "v1.2.3",
		"v1.2.3-4-gabcdef0":  "v1.2.3-4-gabcdef0",
		"5a26d71-dirty":      "0.0.0+5a26d71-dirty",
		"0123456":            "0.0.0+0123456",
		"dev":                "0.0.0+dev",
		"release/1.0_beta 2": "0.0.0+release-1.0-beta-2",
	} {
		s := &Server{opts: Options{Version: build}}
		got, err := s.Version(context.Background(), &cri.VersionRequest{})
		if err != nil || got.GetRuntimeVersion() != want {
			t.Errorf("build %q: version %q, %v; want %q", build, got.GetRuntimeVersion(), err, want)
		}
		if _, err := version.ParseSemantic(got.GetRuntimeVersion()); err != nil {
			t.Errorf("build %q: %v", build, err)
		}
	}
}
