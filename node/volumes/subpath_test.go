package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSubPathNeverWidensToTheVolume(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": "", "UP": "..", "ROOT": "/etc"}[name]
		return v, ok
	}
	for _, tt := range []struct{ path, expr, want, fault string }{
		{"", "", "", ""},
		{"a/b", "", "a/b", ""},
		{"", "$(A)/b", "a/b", ""},
		{"", "x$$(A)", "x$(A)", ""},
		{"", "$(EMPTY)", "", "missing value for EMPTY"},
		{"", "$(NONE)/$(A)/$(EMPTY)", "", "missing value for EMPTY, NONE"},
		{"", "$(UP)/x", "", "unable to provision SubPath `../x`: must not contain '..'"},
		{"a/../b", "", "", "unable to provision SubPath `a/../b`: must not contain '..'"},
		{"", "$(ROOT)", "", "error SubPath `/etc` must not be an absolute path"},
	} {
		got, err := subPath(corev1.VolumeMount{Name: "v", SubPath: tt.path, SubPathExpr: tt.expr}, env)
		if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && err.Error() != tt.fault {
			t.Errorf("subPath %q, subPathExpr %q: %q, %v", tt.path, tt.expr, got, err)
		}
	}
}
