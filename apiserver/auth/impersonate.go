package auth

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An Impersonation is one way in which a request may be served as the user that its headers name: a mode of constrained
// impersonation (KEP-5284), or the plain verb "impersonate".
type Impersonation struct {
	// User is the user as whom the request is served.
	User *User

	// Requestor is the sender, as authorization sees it in this mode.
	Requestor *User

	// On is the prefix of the verb of the request itself that the sender must be allowed:
	// "impersonate-on:user-info:". It is empty for the plain verb.
	On string

	// Verb is the verb that the sender must be allowed on the claims.
	Verb   string
	Claims []Claim
}

// A Claim is one thing that the sender must be allowed to do with the verb of the impersonation.
type Claim struct {
	schema.GroupVersionResource

	Subresource, Namespace, Name string

	// All, if not nil, is a claim to everything of this sort. If it is allowed, this one and the following ones with the
	// same All need not be asked for.
	All *Claim

	// Refused is the reason why no user may do this; empty if there is none.
	Refused string
}

const impersonatePrefix = "Impersonate-"

// manyClaims is from how many groups or values on the claim to all of them is tried first, as upstream.
const manyClaims = 4

// ImpersonationsOf reads the Impersonate-* headers of a request of requestor and removes them. It returns the ways to
// serve it, of which the first that the requestor is allowed counts; none without such headers. The error, a bad request,
// is that of headers that name no user. Which groups a user gets that the headers do not name are Kubernetes' rules.
func ImpersonationsOf(h http.Header, requestor *User) ([]Impersonation, error) {
	if !impersonates(h) {
		return nil, nil
	}
	wanted, extra := wantedUser(h)
	if wanted.Name == "" {
		if wanted.UID != "" || len(wanted.Groups) > 0 || extra {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %s without impersonating a user name", describe(&wanted)))
		}
		return nil, nil
	}
	for name := range h {
		if strings.HasPrefix(name, impersonatePrefix) {
			delete(h, name)
		}
	}
	node, isNode := nodeUser(wanted.Name)
	_, _, isAccount := splitServiceAccount(wanted.Name)
	plain := wanted.UID == "" && len(wanted.Groups) == 0 && len(wanted.Extra) == 0
	var all []Impersonation
	if plain && isNode && associated(requestor, node) {
		all = append(all, constrained("associated-node", withoutExtra(requestor), &wanted))
	}
	if plain && isNode {
		all = append(all, constrained("arbitrary-node", requestor, &wanted))
	}
	if plain && isAccount {
		all = append(all, constrained("serviceaccount", requestor, &wanted))
	}
	if !isNode && !isAccount {
		all = append(all, constrained("user-info", requestor, &wanted))
	}
	return append(all, unconstrained(requestor, &wanted)), nil
}

// wantedUser returns the user in the headers, and whether there is one for extra.
func wantedUser(h http.Header) (u User, extra bool) {
	u = User{
		Name:   h.Get(authenticationv1.ImpersonateUserHeader),
		UID:    h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: slices.Clone(h[authenticationv1.ImpersonateGroupHeader]),
		Extra:  map[string][]string{},
	}
	for header, values := range h {
		key, found := strings.CutPrefix(header, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !found {
			continue
		}
		extra = true
		if key = extraKey(key); len(values) > 0 {
			u.Extra[key] = append(u.Extra[key], values...)
		}
	}
	return u, extra
}

// extraKey returns the key of extra that the rest of a header's name stands for.
func extraKey(rest string) string {
	rest = strings.ToLower(rest)
	if plain, err := url.PathUnescape(rest); err == nil {
		return plain
	}
	return rest
}

func describe(u *User) string {
	var parts []string
	for _, g := range u.Groups {
		parts = append(parts, fmt.Sprintf("group %q", g))
	}
	if u.UID != "" {
		parts = append(parts, fmt.Sprintf("uid %q", u.UID))
	}
	for _, key := range sortedKeys(u.Extra) {
		parts = append(parts, fmt.Sprintf("extra %q", key))
	}
	return cmp.Or(strings.Join(parts, ", "), "extra")
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

// constrained returns the impersonation in a mode.
func constrained(mode string, requestor, wanted *User) Impersonation {
	gv := authenticationv1.SchemeGroupVersion
	m := Impersonation{Requestor: requestor, On: "impersonate-on:" + mode + ":", Verb: "impersonate:" + mode}
	u := *wanted
	if node, ok := nodeUser(u.Name); ok {
		u.Groups = []string{GroupNodes}
		if mode == "associated-node" {
			node = "*" // authorization is for the node of each pod of the service account
		}
		m.claim(gv, "nodes", "", "", node)
	} else if namespace, account, ok := splitServiceAccount(u.Name); ok {
		u.Groups = accountGroups(namespace)
		m.claim(gv, "serviceaccounts", "", namespace, account)
	} else {
		m.claim(gv, "users", "", "", u.Name)
	}
	m.claimUID(u.UID)
	m.claimGroups(gv, wanted.Groups)
	m.claimExtra(u.Extra)
	u.Groups = complete(&u)
	m.User = &u
	return m
}

// unconstrained returns the impersonation by the plain verb "impersonate".
func unconstrained(requestor, wanted *User) Impersonation {
	m := Impersonation{Requestor: requestor, Verb: "impersonate"}
	u := *wanted
	if namespace, account, ok := splitServiceAccount(u.Name); ok {
		m.claim(corev1.SchemeGroupVersion, "serviceaccounts", "", namespace, account)
		if len(u.Groups) == 0 {
			u.Groups = accountGroups(namespace)
		}
	} else {
		m.claim(corev1.SchemeGroupVersion, "users", "", "", u.Name)
	}
	m.claimUID(u.UID)
	for _, group := range wanted.Groups {
		m.claim(corev1.SchemeGroupVersion, "groups", "", "", group)
	}
	for _, key := range sortedKeys(u.Extra) {
		for _, value := range u.Extra[key] {
			m.claim(authenticationv1.SchemeGroupVersion, "userextras", key, "", value)
		}
	}
	u.Groups = complete(&u)
	m.User = &u
	return m
}

func (m *Impersonation) claim(gv schema.GroupVersion, resource, subresource, namespace, name string) {
	m.Claims = append(m.Claims, Claim{GroupVersionResource: gv.WithResource(resource), Subresource: subresource, Namespace: namespace, Name: name})
}

func (m *Impersonation) claimUID(uid string) {
	if uid != "" {
		m.claim(authenticationv1.SchemeGroupVersion, "uids", "", "", uid)
	}
}

func (m *Impersonation) claimGroups(gv schema.GroupVersion, groups []string) {
	resource := gv.WithResource("groups")
	switch {
	case slices.Contains(groups, ""):
		m.Claims = append(m.Claims, Claim{GroupVersionResource: resource, Refused: "impersonating the empty string group is not allowed"})
		return
	case slices.Contains(groups, GroupMasters):
		m.Claims = append(m.Claims, Claim{GroupVersionResource: resource, Name: GroupMasters, Refused: "impersonating the system:masters group is not allowed"})
		return
	}
	var all *Claim
	if len(groups) >= manyClaims {
		all = &Claim{GroupVersionResource: resource, Name: "*"}
	}
	for _, group := range groups {
		m.Claims = append(m.Claims, Claim{GroupVersionResource: resource, Name: group, All: all})
	}
}

func (m *Impersonation) claimExtra(extra map[string][]string) {
	resource := authenticationv1.SchemeGroupVersion.WithResource("userextras")
	if err := checkExtra(extra); err != nil {
		m.Claims = append(m.Claims, Claim{GroupVersionResource: resource, Refused: err.Error()})
		return
	}
	values := 0
	for _, v := range extra {
		values += len(v)
	}
	var all *Claim
	if values >= manyClaims {
		all = &Claim{GroupVersionResource: resource, Subresource: "*", Name: "*"}
	}
	for _, key := range sortedKeys(extra) {
		for _, value := range extra[key] {
			m.Claims = append(m.Claims, Claim{GroupVersionResource: resource, Subresource: key, Name: value, All: all})
		}
	}
}

// checkExtra returns why extra cannot be impersonated in a mode.
func checkExtra(extra map[string][]string) error {
	for _, key := range sortedKeys(extra) {
		if key == "" {
			return errors.New("impersonating the empty string key in extra is not allowed")
		}
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
		}
		if key != strings.ToLower(key) {
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		}
		if slices.Contains(extra[key], "") {
			return errors.New("impersonating the empty string value in extra is not allowed")
		}
	}
	return nil
}

// complete returns the groups of an impersonated user with the one that says whether it is authenticated.
func complete(u *User) []string {
	switch {
	case u.In(GroupUnauthenticated):
		return u.Groups
	case u.Name == Anonymous:
		return append(slices.Clip(u.Groups), GroupUnauthenticated)
	}
	return withAuthenticated(u.Groups)
}

func accountGroups(namespace string) []string {
	return []string{GroupServiceAccounts, GroupServiceAccounts + ":" + namespace}
}

// associated reports whether the requestor is a service account with a token of a pod on that node.
func associated(requestor *User, node string) bool {
	if requestor == nil {
		return false
	}
	_, _, account := splitServiceAccount(requestor.Name)
	on := requestor.Extra[nodeNameKey]
	return account && len(on) == 1 && on[0] == node
}

// withoutExtra returns the requestor with the keys of its extra values alone: the values differ between the pods of a
// service account.
func withoutExtra(requestor *User) *User {
	u := *requestor
	u.Extra = map[string][]string{"authentication.kubernetes.io/associated-node-keys": sortedKeys(requestor.Extra)}
	return &u
}

// nodeUser returns the node that a user name stands for, if it is one.
func nodeUser(user string) (node string, ok bool) {
	node, ok = strings.CutPrefix(user, nodePrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// splitServiceAccount returns the account that a user name stands for, if it is one.
func splitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, found := strings.CutPrefix(user, serviceAccountPrefix)
	if !found {
		return "", "", false
	}
	namespace, name, found = strings.Cut(rest, ":")
	return namespace, name, found && namespace != "" && name != "" && !strings.Contains(name, ":")
}
