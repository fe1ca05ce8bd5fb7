package clusters

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
)

// authenticationFlags adds the flags of kube-apiserver about authentication.
func authenticationFlags(f *pflag.FlagSet, a *local.Authentication) {
	f.Var(pathFlag{to: &a.Config, none: local.NoAuthenticationConfig}, "authentication-config", "file with an AuthenticationConfiguration (issuers of JSON Web Tokens, anonymous requests), read at each start and when it changes; \"none\" removes it")
	f.Var(switchFlag{&a.Anonymous}, "anonymous-auth", "serve requests without credentials, as user system:anonymous (default true)")
	f.Lookup("anonymous-auth").NoOptDefVal = "true"
	o := &a.OIDC
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "https URL of an OpenID Connect issuer whose tokens are accepted; \"none\" removes it")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "client ID in the audience of tokens of the issuer; required with --oidc-issuer-url")
	f.Var(pathFlag{to: &o.CAFile}, "oidc-ca-file", "file with the certificates of the authority of the issuer's server (default: those of this host)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", "", "claim with the name of the user (default sub)")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "prefix that the names of users get; \"-\" means none (default: the issuer's URL and \"#\", or none for the claim email)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim with the groups of the user: a text or a list of texts")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "prefix that the groups of users get (default: none)")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", nil, "comma-separated algorithms with which tokens may be signed (default RS256)")
	f.StringArrayVar(&o.RequiredClaims, "oidc-required-claim", nil, "KEY=VALUE that a token must have; may be repeated")
	r := &a.RequestHeader
	f.Var(pathFlag{to: &r.ClientCAFile, none: local.NoRequestHeader}, "requestheader-client-ca-file", "file with the certificates of the authority whose clients may send users in headers; \"none\" removes it")
	f.StringSliceVar(&r.AllowedNames, "requestheader-allowed-names", nil, "common names that clients of --requestheader-client-ca-file may have (default: any)")
	f.StringSliceVar(&r.UsernameHeaders, "requestheader-username-headers", nil, "headers with the name of the user (default X-Remote-User)")
	f.StringSliceVar(&r.UIDHeaders, "requestheader-uid-headers", nil, "headers with the UID of the user (default X-Remote-Uid)")
	f.StringSliceVar(&r.GroupHeaders, "requestheader-group-headers", nil, "headers with the groups of the user (default X-Remote-Group)")
	f.StringSliceVar(&r.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of the headers with extra values of the user (default X-Remote-Extra-)")
}

// authenticationArgs is the opposite: the arguments that set the flags to a.
func authenticationArgs(a local.Authentication) []string {
	var args []string
	add := func(name, value string) {
		if value != "" {
			args = append(args, fmt.Sprintf("--%s=%s", name, value))
		}
	}
	each := func(name string, values []string) {
		for _, v := range values {
			add(name, v)
		}
	}
	add("authentication-config", a.Config)
	if a.Anonymous != nil {
		add("anonymous-auth", strconv.FormatBool(*a.Anonymous))
	}
	o := a.OIDC
	add("oidc-issuer-url", o.IssuerURL)
	add("oidc-client-id", o.ClientID)
	add("oidc-ca-file", o.CAFile)
	add("oidc-username-claim", o.UsernameClaim)
	add("oidc-username-prefix", o.UsernamePrefix)
	add("oidc-groups-claim", o.GroupsClaim)
	add("oidc-groups-prefix", o.GroupsPrefix)
	each("oidc-signing-algs", o.SigningAlgs)
	each("oidc-required-claim", o.RequiredClaims)
	r := a.RequestHeader
	add("requestheader-client-ca-file", r.ClientCAFile)
	each("requestheader-allowed-names", r.AllowedNames)
	each("requestheader-username-headers", r.UsernameHeaders)
	each("requestheader-uid-headers", r.UIDHeaders)
	each("requestheader-group-headers", r.GroupHeaders)
	each("requestheader-extra-headers-prefix", r.ExtraHeaderPrefixes)
	return args
}

// switchFlag reads true or false, and knows whether it was given.
type switchFlag struct{ to **bool }

func (s switchFlag) String() string {
	if s.to == nil || *s.to == nil {
		return ""
	}
	return strconv.FormatBool(**s.to)
}

func (switchFlag) Type() string { return "bool" }

func (s switchFlag) Set(text string) error {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("must be true or false, got %q", text)
	}
	*s.to = &v
	return nil
}
