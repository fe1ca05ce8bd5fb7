package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	const commit = "97c0d617a1b2c3d4e5f60718293a4b5c6d7e8f90"
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: "github.com/sampan-io/sampan", Version: version}, Settings: settings}
	}
	at := debug.BuildSetting{Key: "vcs.revision", Value: commit}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"nothing known", nil, "dev"},
		{"without a repository", built("(devel)"), "dev"},
		{"a checkout, older Go", built("(devel)", at), "97c0d617"},
		{"a checkout", built("v0.0.0-20261128100000-97c0d617a1b2", at, debug.BuildSetting{Key: "vcs.modified", Value: "false"}), "97c0d617"},
		{"a changed checkout", built("v0.0.0-20261128100000-97c0d617a1b2+dirty", at, dirty), "97c0d617-dirty"},
		{"after a release", built("v1.2.4-0.20261128100000-97c0d617a1b2", at), "97c0d617"},
		{"a release", built("v1.2.3", at), "v1.2.3"},
		{"go install of a release", built("v1.2.3"), "v1.2.3"},
		{"go install of a commit", built("v0.0.0-20261128100000-97c0d617a1b2"), "v0.0.0-20261128100000-97c0d617a1b2"},
		{"a candidate", built("v1.2.3-rc.1", at), "v1.2.3-rc.1"},
	} {
		if got := versionOf(tt.info); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
