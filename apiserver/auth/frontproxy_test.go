package auth_test

import (
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/apiserver/auth"
)

func TestFrontProxy(t *testing.T) {
	users, proxies := newAuthority(t), newAuthority(t)
	proxy, err := auth.NewFrontProxy(auth.FrontProxyOptions{
		ClientCAs: func() *x509.CertPool { return proxies.pool }, AllowedNames: []string{"front-proxy-client"},
		UsernameHeaders: []string{"X-Remote-User", "X-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return users.pool }, FrontProxy: proxy})
	good := proxies.sign(t, client("front-proxy-client"), nil)
	for _, tt := range []struct {
		name    string
		cert    *x509.Certificate
		headers string
		want    *auth.User // nil: refused or anonymous
		left    string     // header that is still there
	}{
		{
			"a user", good, "X-Remote-User: jane|X-Remote-Group: a|X-Remote-Group: b|X-Remote-Uid: 7|X-Remote-Extra-Example.com%2fx: v|X-Other: o",
			&auth.User{Name: "jane", UID: "7", Groups: []string{"a", "b", "system:authenticated"}, Extra: map[string][]string{"example.com/x": {"v"}}}, "X-Other",
		},
		{"the second header", good, "X-User: jane", &auth.User{Name: "jane", Groups: []string{"system:authenticated"}, Extra: map[string][]string{}}, ""},
		{"two names", good, "X-Remote-User: jane|X-Remote-User: root", &auth.User{Name: "jane", Groups: []string{"system:authenticated"}, Extra: map[string][]string{}}, ""},
		{"nobody", good, "X-Remote-User: system:anonymous|X-Remote-Group: system:unauthenticated", &auth.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}, Extra: map[string][]string{}}, ""},
		{"another spelling", good, "X_Remote_User: root", nil, "X_Remote_User"},
		{"no certificate", nil, "X-Remote-User: root", nil, "X-Remote-User"},
		{"another name", proxies.sign(t, client("someone"), nil), "X-Remote-User: root", nil, "X-Remote-User"},
		{"a user's certificate", users.sign(t, client("front-proxy-client"), nil), "X-Remote-User: root|X-Remote-Group: system:masters", &auth.User{Name: "front-proxy-client", Groups: []string{"system:authenticated"}}, "X-Remote-User"},
	} {
		r := request(tt.cert, "")
		for line := range strings.SplitSeq(tt.headers, "|") {
			name, value, _ := strings.Cut(line, ": ")
			if strings.Contains(name, "_") {
				r.Header[name] = append(r.Header[name], value)
			} else {
				r.Header.Add(name, value)
			}
		}
		got, err := a.Authenticate(r)
		if got != nil && tt.want != nil && tt.want.Extra == nil {
			c := *got
			c.Extra = nil
			got = &c
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %v %s", tt.name, err, diff)
		}
		if tt.left != "" && r.Header[tt.left] == nil && r.Header.Get(tt.left) == "" {
			t.Errorf("%s: %s was removed", tt.name, tt.left)
		}
		if tt.cert == good && got != nil && r.Header.Get("X-Remote-User")+r.Header.Get("X-Remote-Group")+r.Header.Get("X-Remote-Extra-Example.com%2fx") != "" {
			t.Errorf("%s: %v are left", tt.name, r.Header)
		}
	}
	if _, err := a.Authenticate(withHeader(request(good, ""), "X-Remote-Group", "system:masters")); err == nil {
		t.Error("a proxy without a user is a user")
	}
	for name, o := range map[string]auth.FrontProxyOptions{
		"no CA":        {UsernameHeaders: []string{"X"}},
		"no header":    {ClientCAs: func() *x509.CertPool { return nil }},
		"empty header": {ClientCAs: func() *x509.CertPool { return nil }, UsernameHeaders: []string{"X"}, GroupHeaders: []string{""}},
	} {
		if _, err := auth.NewFrontProxy(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func withHeader(r *http.Request, name, value string) *http.Request {
	r.Header.Set(name, value)
	return r
}
