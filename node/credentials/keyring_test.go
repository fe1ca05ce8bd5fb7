package credentials

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/run"
)

func secret(name string, kind corev1.SecretType, key, text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}, Type: kind, Data: map[string][]byte{key: []byte(text)}}
}

func users(list []Credential) string {
	var names []string
	for _, c := range list {
		names = append(names, c.Username+":"+c.Password)
	}
	return strings.Join(names, " ")
}

func TestLookupReturnsMostSpecificFirst(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("hub:p:w"))
	k, err := FromSecrets([]*corev1.Secret{
		secret("a", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{
			"registry.example": {"username":"host","password":"1"}, "https://registry.example/team": {"username":"team","password":"2"},
			"*.example": {"username":"glob","password":"3"}, "registry.example:5000/v2/": {"username":"port","password":"4"},
			"https://index.docker.io/v1/": {"auth":"`+auth+`"}}}`),
		secret("b", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"registry.example":{"username":"old","password":"5"}}`),
		secret("c", corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey, `{"auths":{"registry.example":{"username":"no","password":"6"}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{
		"registry.example/team/web": "team:2 host:1 old:5 glob:3",
		"registry.example/other":    "host:1 old:5 glob:3",
		"else.example/x":            "glob:3",
		"a.b.example/x":             "",
		"registry.example:5000/x":   "port:4",
		"docker.io/library/nginx":   "hub:p:w",
		"quay.io/x":                 "",
	} {
		if got := users(k.Lookup(repository)); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
	found := k.Lookup("registry.example/team/web")[0]
	if found.Secret != (Source{"u", "ns", "a"}) || len(found.Hash) != 64 {
		t.Errorf("source %+v, hash %q", found.Secret, found.Hash)
	}
}

func TestBrokenSecretIsNamedWithoutItsContent(t *testing.T) {
	for _, text := range []string{`{"auths":{"x":{"auth":"aGlkZGVu"}}}`, `hidden`, `{"auths":"hidden"}`} {
		_, err := FromSecrets([]*corev1.Secret{secret("a", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, text)})
		if err == nil || !strings.Contains(err.Error(), "secret ns/a") || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "aGlkZGVu") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// plugins writes a configuration with one plug-in, a shell script, and loads it.
func plugins(t *testing.T, script, config string) (*Plugins, string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "helper"), []byte("#!/bin/sh\necho run >> "+dir+"/runs\n"+script), 0o700); err != nil { // a program
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(file, dir, slog.Default())
	return p, filepath.Join(dir, "runs"), err
}

const settings = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: helper
  matchImages: ["*.example"]
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: WHO, value: me}]
`

const answers = `grep -q '"image":"registry.example' || exit 3
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","auth":{"registry.example":{"username":"'$WHO-$1'","password":"p"}}}'`

func runs(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "run")
}

func TestPluginsAreRunAndTheirAnswersKept(t *testing.T) {
	p, file, err := plugins(t, answers, settings)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p.list[0].now = func() time.Time { return now }
	for _, image := range []string{"registry.example/a", "registry.example/b"} {
		if got := users(lookup(t.Context(), p, image, image, Pod{}, nil)); got != "me-get:p" {
			t.Errorf("%s: %q", image, got)
		}
	}
	if n := runs(t, file); n != 1 {
		t.Errorf("the plug-in ran %d times", n)
	}
	now = now.Add(2 * time.Hour)
	if got := users(lookup(t.Context(), p, "registry.example/a", "registry.example/a", Pod{}, nil)); got != "me-get:p" || runs(t, file) != 2 {
		t.Errorf("after the cache has expired: %q, %d runs", got, runs(t, file))
	}
	if got := lookup(t.Context(), p, "quay.io/a", "quay.io/a", Pod{}, nil); got != nil || runs(t, file) != 2 {
		t.Errorf("another registry: %v", got)
	}
}

func TestFailingPluginHasNoCredentials(t *testing.T) {
	for _, script := range []string{"exit 1", "echo nonsense", `echo '{"kind":"Other"}'`, "head -c 3000000 /dev/zero", "kill -9 $$"} {
		p, _, err := plugins(t, script, settings)
		if err != nil {
			t.Fatal(err)
		}
		if got := lookup(context.Background(), p, "registry.example/a", "registry.example/a", Pod{}, nil); len(got) > 0 {
			t.Errorf("%s: %v", script, got)
		}
	}
}

func TestHangingPluginEndsWithItsChildren(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, err := plugins(t, "sleep 1000 >"+pipe+" &\nwait", settings)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx, 1)
	defer g.Wait()
	defer cancel()
	g.Go(func(ctx context.Context) { lookup(ctx, p, "registry.example/a", "registry.example/a", Pod{}, nil) })
	f, err := os.Open(pipe) // waits until the child has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cancel()
	if data, err := io.ReadAll(f); err != nil || len(data) > 0 { // waits until the child has ended
		t.Errorf("%q, %v", data, err)
	}
}

// TestRunsAreShared has ten pods ask a plug-in that fails, while it runs.
func TestRunsAreShared(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	p, file, err := plugins(t, "cat "+gate+"\nexit 1", settings)
	if err != nil {
		t.Fatal(err)
	}
	const pods = 10
	asked := make(chan struct{}, pods)
	g := run.NewGroup(t.Context(), 0)
	for range pods {
		g.Go(func(ctx context.Context) {
			asked <- struct{}{}
			lookup(ctx, p, "registry.example/a", "registry.example/a", Pod{}, nil)
		})
	}
	for range pods {
		<-asked
	}
	f, err := os.OpenFile(gate, os.O_WRONLY, 0) // waits until the program reads
	if err != nil {
		t.Fatal(err)
	}
	for waiting := 0; waiting < pods-1; {
		waiting = strings.Count(stacks(), "credentials.(*plugin).provide") - 1
		goruntime.Gosched()
	}
	_ = f.Close()
	g.Wait()
	if n := runs(t, file); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// stacks returns those of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:goruntime.Stack(b, true)])
}

func TestFaultsOfTheConfigurationNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(settings, "defaultCacheDuration: 1h", "defaultCacheDuration: -1s", 1): "providers[0].defaultCacheDuration",
		strings.Replace(settings, "  matchImages", "  matchimages", 1):                        "matchimages",
		strings.Replace(settings, "credentialprovider.kubelet.k8s.io/v1", "v9", 1):            "providers[0].apiVersion",
		strings.Replace(settings, "name: helper", "name: ../helper", 1):                       "providers[0].name",
		strings.Replace(settings, "name: helper", "name: missing", 1):                         `program of provider "missing"`,
		strings.Replace(settings, "kind: Cred", "kind: Fred", 1):                              "kind",
	} {
		if _, _, err := plugins(t, "", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// lookup returns the credentials of plug-ins.
func lookup(ctx context.Context, p *Plugins, image, repository string, pod Pod, accounts Accounts) []Credential {
	found, _ := p.Lookup(ctx, image, repository, pod, accounts)
	return found
}
