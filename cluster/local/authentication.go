package local

import (
	"errors"
	"reflect"
)

// Authentication says how users authenticate beside the certificates and tokens of the cluster, as the flags of
// kube-apiserver of these names do.
type Authentication struct {
	// Config is the absolute path of an AuthenticationConfiguration, read at each start and when it changes. Empty
	// means none; NoAuthenticationConfig removes a stored path.
	Config string `json:"config,omitempty"`

	OIDC          OIDC          `json:"oidc,omitzero"`
	RequestHeader RequestHeader `json:"requestHeader,omitzero"`

	// Anonymous says whether requests without credentials are served; nil means that they are.
	Anonymous *bool `json:"anonymous,omitempty"`
}

// OIDC are the flags --oidc-*: one issuer.
type OIDC struct {
	IssuerURL      string   `json:"issuerURL,omitempty"` // NoOIDC removes the stored issuer
	ClientID       string   `json:"clientID,omitempty"`
	CAFile         string   `json:"caFile,omitempty"`
	UsernameClaim  string   `json:"usernameClaim,omitempty"`
	UsernamePrefix string   `json:"usernamePrefix,omitempty"`
	GroupsClaim    string   `json:"groupsClaim,omitempty"`
	GroupsPrefix   string   `json:"groupsPrefix,omitempty"`
	SigningAlgs    []string `json:"signingAlgs,omitempty"`
	RequiredClaims []string `json:"requiredClaims,omitempty"`
}

// RequestHeader are the flags --requestheader-*: an authenticating proxy, beside that of the cluster itself.
type RequestHeader struct {
	ClientCAFile        string   `json:"clientCAFile,omitempty"` // NoRequestHeader removes the stored settings
	AllowedNames        []string `json:"allowedNames,omitempty"`
	UsernameHeaders     []string `json:"usernameHeaders,omitempty"`
	UIDHeaders          []string `json:"uidHeaders,omitempty"`
	GroupHeaders        []string `json:"groupHeaders,omitempty"`
	ExtraHeaderPrefixes []string `json:"extraHeaderPrefixes,omitempty"`
}

// Values that take back stored settings.
const (
	NoAuthenticationConfig = "none"
	NoOIDC                 = "none"
	NoRequestHeader        = "none"
)

func (o OIDC) given() bool { return !reflect.DeepEqual(o, OIDC{}) }

func (r RequestHeader) given() bool { return !reflect.DeepEqual(r, RequestHeader{}) }

// with returns the stored settings with the ones of this start. The flags of one kind replace each other together.
func (a Authentication) with(asked Authentication) Authentication {
	switch asked.Config {
	case "":
	case NoAuthenticationConfig:
		a.Config = ""
	default:
		a.Config = asked.Config
	}
	if asked.OIDC.given() {
		if a.OIDC = asked.OIDC; a.OIDC.IssuerURL == NoOIDC {
			a.OIDC = OIDC{}
		}
	}
	if asked.RequestHeader.given() {
		if a.RequestHeader = asked.RequestHeader; a.RequestHeader.ClientCAFile == NoRequestHeader {
			a.RequestHeader = RequestHeader{}
		}
	}
	if asked.Anonymous != nil {
		a.Anonymous = asked.Anonymous
	}
	return a
}

// check returns the fault of settled settings.
func (a Authentication) check() error {
	switch {
	case a.OIDC.given() && (a.OIDC.IssuerURL == "" || a.OIDC.ClientID == ""):
		return errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	case a.OIDC.given() && a.Config != "":
		return errors.New("authentication-config file and oidc-* flags are mutually exclusive; --oidc-issuer-url=none and --authentication-config=none remove stored ones")
	case a.RequestHeader.given() && a.RequestHeader.ClientCAFile == "":
		return errors.New("--requestheader-client-ca-file: is required with other --requestheader-* flags")
	}
	return nil
}
