package pullrecord

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, o Options, present map[string]string) *Records {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := Open(o, present)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func own(list ...Secret) func() (Access, error) {
	return func() (Access, error) { return Access{KubernetesSecrets: list}, nil }
}

func must(t *testing.T, r *Records, image string, want bool, list ...Secret) {
	t.Helper()
	if got, err := r.Check(Use{Image: image, Ref: "id"}, own(list...)); err != nil || (got == MustAuthenticate) != want {
		t.Errorf("%s with %v: verdict %q, %v", image, list, got, err)
	}
}

func pull(t *testing.T, r *Records, image string, a Access) {
	t.Helper()
	if err := errors.Join(r.Begin(image), r.Pulled(image, "id", a)); err != nil {
		t.Fatal(err)
	}
}

var (
	first   = Secret{"1", "ns", "a", "hash"}
	rotated = Secret{"1", "ns", "a", "new"}
	copied  = Secret{"2", "other", "b", "hash"}
	foreign = Secret{"3", "other", "c", "another"}
)

func TestPrivateImageNeedsTheSameCredential(t *testing.T) {
	dir := t.TempDir()
	r := open(t, Options{Dir: dir}, nil)
	must(t, r, "r/x:1", false) // preloaded
	pull(t, r, "r/x:1", Access{KubernetesSecrets: []Secret{first}})
	r = open(t, Options{Dir: dir}, nil) // what is on disk counts
	must(t, r, "r/x:1", true)
	must(t, r, "r/x:1", true, foreign)
	must(t, r, "r/x:2", false, first)
	must(t, r, "r/x@sha256:1", false, copied)
	must(t, r, "r/x:1", false, rotated)
	must(t, r, "r/other:1", true, first) // the same image by another name
	for policy, want := range map[Policy]Verdict{NeverVerifyPreloadedImages: PolicyAllows, AlwaysVerify: MustAuthenticate} {
		got, err := open(t, Options{Dir: dir, Policy: policy}, nil).Check(Use{Image: "r/other:1", Ref: "id", Imported: true}, own())
		if err != nil || got != want {
			t.Errorf("imported by another name, %s: verdict %q, %v", policy, got, err)
		}
	}
	pull(t, r, "r/x:1", Access{NodePodsAccessible: true})
	must(t, r, "r/x:1", false)
}

func TestPrivateImageNeedsTheSameServiceAccount(t *testing.T) {
	dir := t.TempDir()
	cook, captain := ServiceAccount{"1", "ship", "cook"}, ServiceAccount{"2", "ship", "captain"}
	r := open(t, Options{Dir: dir}, nil)
	pull(t, r, "r/x:1", Access{KubernetesSecrets: []Secret{first}})
	pull(t, r, "r/x:1", Access{KubernetesServiceAccounts: []ServiceAccount{cook}})
	r = open(t, Options{Dir: dir}, nil)
	must(t, r, "r/x:1", false, first)
	for account, want := range map[ServiceAccount]Verdict{cook: RecordFound, captain: MustAuthenticate, {"3", "ship", "cook"}: MustAuthenticate} {
		got, err := r.Check(Use{Image: "r/x:1", Ref: "id"}, func() (Access, error) { return Access{KubernetesServiceAccounts: []ServiceAccount{account}}, nil })
		if err != nil || got != want {
			t.Errorf("%v: verdict %q (%v), want %q", account, got, err, want)
		}
	}
}

func TestErrorOfTheSecretsIsReturned(t *testing.T) {
	r := open(t, Options{}, nil)
	pull(t, r, "r/x:1", Access{KubernetesSecrets: []Secret{first}})
	if _, err := r.Check(Use{Image: "r/x:1", Ref: "id"}, func() (Access, error) { return Access{}, os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestPoliciesDecideAboutPreloadedImages(t *testing.T) {
	for policy, want := range map[Policy]bool{NeverVerify: false, NeverVerifyPreloadedImages: false, NeverVerifyAllowlistedImages: true, AlwaysVerify: true} {
		must(t, open(t, Options{Policy: policy}, nil), "r/x:1", want)
	}
	r := open(t, Options{Policy: NeverVerifyAllowlistedImages, Allow: []string{"r/x", "q/*"}}, nil)
	must(t, r, "r/x:1", false)
	must(t, r, "q/y/z:1", false)
	must(t, r, "r/xy:1", true)
	if _, err := Open(Options{Dir: t.TempDir(), Policy: "Sometimes"}, nil); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

// TestPullThatACrashCutOffIsVerified checks P1.
func TestPullThatACrashCutOffIsVerified(t *testing.T) {
	dir := t.TempDir()
	r := open(t, Options{Dir: dir}, nil)
	if err := errors.Join(r.Begin("r/x:1"), r.Begin("r/gone:1")); err != nil {
		t.Fatal(err)
	}
	must(t, r, "r/x:1", true)
	r = open(t, Options{Dir: dir}, map[string]string{"r/x:1": "id"})
	must(t, r, "r/x:1", true, first)
	if left, _ := filepath.Glob(filepath.Join(dir, "pulling", "*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestFailedPullLeavesNoRecord(t *testing.T) {
	r := open(t, Options{}, nil)
	for range 2 {
		if err := r.Begin("r/x:1"); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []bool{true, false} {
		if err := r.Failed("r/x:1"); err != nil {
			t.Fatal(err)
		}
		must(t, r, "r/x:1", want)
	}
}

func TestDamagedRecordIsVerified(t *testing.T) {
	r := open(t, Options{}, nil)
	pull(t, r, "r/x:1", Access{NodePodsAccessible: true})
	if err := os.WriteFile(r.path("pulled", "id"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, r, "r/x:1", true)
	pull(t, r, "r/x:1", Access{NodePodsAccessible: true})
	must(t, r, "r/x:1", false)
}

func TestPruneKeepsNewRecordsAndPresentImages(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := open(t, Options{Now: func() time.Time { return now }}, nil)
	pull(t, r, "r/x:1", Access{KubernetesSecrets: []Secret{first}})
	for _, c := range []struct {
		keep   []string
		before time.Time
		want   bool
	}{{nil, now, true}, {[]string{"id"}, now.Add(time.Hour), true}, {nil, now.Add(time.Hour), false}} {
		if err := r.Prune(c.keep, c.before); err != nil {
			t.Fatal(err)
		}
		must(t, r, "r/x:1", c.want)
	}
}
