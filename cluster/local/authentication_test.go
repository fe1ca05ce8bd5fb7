package local

import (
	"reflect"
	"strings"
	"testing"
)

func TestAuthenticationSettings(t *testing.T) {
	yes, no := true, false
	issuer := OIDC{IssuerURL: "https://i", ClientID: "c"}
	proxy := RequestHeader{ClientCAFile: "/ca"}
	for name, tt := range map[string]struct{ stored, asked, want Authentication }{
		"nothing asked for":      {Authentication{Config: "/f", RequestHeader: proxy, Anonymous: &no}, Authentication{}, Authentication{Config: "/f", RequestHeader: proxy, Anonymous: &no}},
		"another file":           {Authentication{Config: "/f"}, Authentication{Config: "/g"}, Authentication{Config: "/g"}},
		"no file":                {Authentication{Config: "/f"}, Authentication{Config: "none"}, Authentication{}},
		"flags replace together": {Authentication{OIDC: OIDC{IssuerURL: "https://h", ClientID: "d", GroupsClaim: "g"}}, Authentication{OIDC: issuer}, Authentication{OIDC: issuer}},
		"no issuer":              {Authentication{OIDC: issuer}, Authentication{OIDC: OIDC{IssuerURL: "none"}}, Authentication{}},
		"from flags to a file":   {Authentication{OIDC: issuer}, Authentication{Config: "/f", OIDC: OIDC{IssuerURL: "none"}}, Authentication{Config: "/f"}},
		"no proxy":               {Authentication{RequestHeader: proxy}, Authentication{RequestHeader: RequestHeader{ClientCAFile: "none"}}, Authentication{}},
		"anonymous again":        {Authentication{Anonymous: &no}, Authentication{Anonymous: &yes}, Authentication{Anonymous: &yes}},
	} {
		if got := tt.stored.with(tt.asked); !reflect.DeepEqual(got, tt.want) || got.check() != nil {
			t.Errorf("%s: %+v, %v, want %+v", name, got, got.check(), tt.want)
		}
	}
	for want, a := range map[string]Authentication{
		"must be specified together":     {OIDC: OIDC{ClientID: "c"}},
		"mutually exclusive":             {OIDC: issuer, Config: "/f"},
		"--requestheader-client-ca-file": {RequestHeader: RequestHeader{AllowedNames: []string{"p"}}},
	} {
		if err := a.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", a, err, want)
		}
	}
}
