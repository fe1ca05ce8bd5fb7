package imagename_test

import (
	"strings"
	"testing"

	"github.com/sampan-io/sampan/node/imagename"
)

func TestParse(t *testing.T) {
	const (
		format = "invalid reference format"
		digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	)
	for image, want := range map[string]string{
		"busybox":                         "",
		"busybox:1.36":                    "",
		"team/web":                        "",
		"a/b/c/d:v1":                      "",
		"localhost/web":                   "",
		"localhost:5001/team/web:v1":      "",
		"127.0.0.1:5001/team/web":         "",
		"registry.test/team/web" + digest: "",
		"registry.test/a/b:v1" + digest:   "",
		"a__b/c--d.e_f:V_1.2-rc":          "",
		"sampan.local/demo:v1":            "",

		"":                                format,
		"registry.test//web":              format,
		"team//web:v1":                    format,
		"/web":                            format,
		"web/":                            format,
		"registry.test/":                  format,
		"registry.test/team/:v1":          format,
		"team/.web":                       format,
		"team/web.":                       format,
		"-web":                            format,
		"a..b":                            format,
		"a___b":                           format,
		"web:":                            format,
		"web:.1":                          format,
		"web:-1":                          format,
		"web:" + strings.Repeat("a", 129): format,
		"web@sha256:12":                   format,
		"Not An Image":                    format + ": repository name (library/Not An Image) must be lowercase",
		"web ":                            format,
		"http://registry.test/web":        format,
		"team/Web:v1":                     format + ": repository name (team/Web) must be lowercase",
		strings.Repeat("a", 64):           "invalid repository name (" + strings.Repeat("a", 64) + "), cannot specify 64-byte hexadecimal strings",
	} {
		got := ""
		ref, err := imagename.New().Parse(image)
		if err != nil {
			got = err.Error()
		} else if ref == nil {
			got = "no reference"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", image, got, want)
		}
	}
}
