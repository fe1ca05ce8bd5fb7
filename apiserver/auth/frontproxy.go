package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// FrontProxyOptions configures a [FrontProxy]. ClientCAs and UsernameHeaders are required.
type FrontProxyOptions struct {
	// ClientCAs returns the authorities that sign the certificates of proxies, the same pool for as long as nothing
	// changed.
	ClientCAs func() *x509.CertPool

	// AllowedNames are the common names that such a certificate may have; none means any.
	AllowedNames []string

	// The headers in which the proxy sends the user. The first name and UID that are not empty count.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// A FrontProxy finds the user in the headers of requests that come through an authenticating proxy, which shows its own
// certificate. It is safe for concurrent use.
type FrontProxy struct {
	opts         FrontProxyOptions
	certificates certificates
}

// NewFrontProxy returns a FrontProxy, or an error that names the option that is wrong.
func NewFrontProxy(opts FrontProxyOptions) (*FrontProxy, error) {
	if opts.ClientCAs == nil || len(opts.UsernameHeaders) == 0 {
		return nil, errors.New("auth: FrontProxyOptions needs ClientCAs and UsernameHeaders")
	}
	for flag, names := range map[string][]string{
		"--requestheader-username-headers": opts.UsernameHeaders, "--requestheader-uid-headers": opts.UIDHeaders,
		"--requestheader-group-headers": opts.GroupHeaders, "--requestheader-extra-headers-prefix": opts.ExtraHeaderPrefixes,
	} {
		if slices.ContainsFunc(names, func(n string) bool { return strings.TrimSpace(n) == "" || strings.TrimSpace(n) != n }) {
			return nil, fmt.Errorf("%s: empty values are not allowed, and no spaces around a value", flag)
		}
	}
	return &FrontProxy{opts: opts}, nil
}

// user returns the user that the headers of r name, and nil if there is none or the certificate is not that of a proxy. It
// removes the headers of a proxy's request.
func (p *FrontProxy) user(r *http.Request, presented []*x509.Certificate) *User {
	name := firstValue(r.Header, p.opts.UsernameHeaders)
	if name == "" {
		return nil
	}
	proxy, err := p.certificates.user(presented, p.opts.ClientCAs())
	if err != nil || len(p.opts.AllowedNames) > 0 && !slices.Contains(p.opts.AllowedNames, proxy.Name) {
		return nil
	}
	u := &User{Name: name, UID: firstValue(r.Header, p.opts.UIDHeaders), Extra: map[string][]string{}}
	for _, header := range p.opts.GroupHeaders {
		for _, group := range r.Header.Values(header) {
			if group != "" {
				u.Groups = append(u.Groups, group)
			}
		}
	}
	for _, prefix := range p.opts.ExtraHeaderPrefixes {
		for header, values := range r.Header {
			if key, ok := cutPrefixFold(header, prefix); ok {
				key = extraKey(key)
				u.Extra[key] = append(u.Extra[key], values...)
			}
		}
	}
	if name != Anonymous && !u.In(GroupUnauthenticated) {
		u.Groups = withAuthenticated(u.Groups)
	}
	p.strip(r.Header)
	return u
}

// strip removes the headers, so that nothing behind this server sees them.
func (p *FrontProxy) strip(h http.Header) {
	for _, header := range slices.Concat(p.opts.UsernameHeaders, p.opts.UIDHeaders, p.opts.GroupHeaders) {
		h.Del(header)
	}
	for _, prefix := range p.opts.ExtraHeaderPrefixes {
		for header := range h {
			if _, ok := cutPrefixFold(header, prefix); ok {
				delete(h, header)
			}
		}
	}
}

func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

func cutPrefixFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}
