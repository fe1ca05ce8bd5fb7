package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/document"
)

// loadPolicy reads the file of a policy. An error names the line and the path of each field that is wrong. Unknown fields
// are a warning, as upstream.
func loadPolicy(path string) (p *Policy, warning, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		p, warning, err = parsePolicy(path, data)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("loading audit policy file: %w", err)
	}
	return p, warning, nil
}

func parsePolicy(source string, data []byte) (p *Policy, warning, err error) {
	doc, err := document.Parse(source, data)
	if err != nil {
		return nil, nil, err
	}
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(data, &head); err != nil || head.APIVersion != apiVersion || head.Kind != "Policy" {
		return nil, nil, fmt.Errorf("%s: apiVersion %q, kind %q: want %s, Policy", source, head.APIVersion, head.Kind, apiVersion)
	}
	p = &Policy{}
	unknown, err := doc.DecodeKnown(p)
	if err == nil {
		err = doc.Faults(p.validate())
	}
	if err == nil && len(p.Rules) == 0 {
		err = errors.New(source + ": loaded illegal policy with 0 rules")
	}
	if err != nil {
		return nil, nil, err
	}
	return p, doc.Faults(unknown), nil
}

func (p *Policy) validate() field.ErrorList {
	errs := checkStages(p.OmitStages, field.NewPath("omitStages"))
	for i, r := range p.Rules {
		errs = append(errs, r.validate(field.NewPath("rules").Index(i))...)
	}
	return errs
}

func (r *Rule) validate(path *field.Path) (errs field.ErrorList) {
	switch r.Level {
	case None, Metadata, Request, RequestResponse:
	case "":
		errs = append(errs, field.Required(path.Child("level"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("level"), r.Level, []Level{None, Metadata, Request, RequestResponse}))
	}
	for i, url := range r.NonResourceURLs {
		at := path.Child("nonResourceURLs").Index(i)
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") {
			errs = append(errs, field.Invalid(at, url, "non-resource URL rules must begin with a '/' character"))
		}
		if url != "" && strings.Contains(url[:len(url)-1], "*") {
			errs = append(errs, field.Invalid(at, url, "non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	for i, g := range r.Resources {
		at := path.Child("resources").Index(i)
		if g.Group != "" && g.Group != "*" {
			if msgs := apivalidation.NameIsDNSSubdomain(g.Group, false); len(msgs) > 0 {
				errs = append(errs, field.Invalid(at.Child("group"), g.Group, strings.Join(msgs, ",")))
			}
		}
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			errs = append(errs, field.Invalid(at.Child("resourceNames"), g.ResourceNames, "using resourceNames requires at least one resource"))
		}
	}
	errs = append(errs, checkStages(r.OmitStages, path.Child("omitStages"))...)
	if len(r.NonResourceURLs) > 0 && (len(r.Resources) > 0 || len(r.Namespaces) > 0) {
		errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func checkStages(stages []Stage, path *field.Path) (errs field.ErrorList) {
	for i, s := range stages {
		switch s {
		case RequestReceived, ResponseStarted, ResponseComplete, Panic:
		default:
			errs = append(errs, field.Invalid(path.Index(i), string(s), "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"))
		}
	}
	return errs
}

// Attributes are what rules match requests by.
type Attributes struct {
	User *auth.User // nil: not authenticated
	Verb string

	// Of a request for objects.
	Group, Version, Resource, Subresource, Namespace, Name string

	Path string // of any other request, which has no Resource
}

// A scope is the recorded part of a request.
type scope struct {
	level      Level
	omitStages []Stage
	omitFields bool // managed fields
}

// decide returns the recorded part of a request.
func (p *Policy) decide(a *Attributes) scope {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.matches(a) {
			s := scope{level: r.Level, omitStages: r.OmitStages, omitFields: p.OmitManagedFields}
			if len(p.OmitStages) > 0 {
				s.omitStages = slices.Concat(p.OmitStages, r.OmitStages)
			}
			if r.OmitManagedFields != nil {
				s.omitFields = *r.OmitManagedFields
			}
			return s
		}
	}
	return scope{level: None}
}

func (r *Rule) matches(a *Attributes) bool {
	if len(r.Users) > 0 && (a.User == nil || !slices.Contains(r.Users, a.User.Name)) {
		return false
	}
	if len(r.UserGroups) > 0 && (a.User == nil || !slices.ContainsFunc(a.User.Groups, func(g string) bool { return slices.Contains(r.UserGroups, g) })) {
		return false
	}
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, a.Verb) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return a.Resource != "" && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, a.Namespace)) &&
			(len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(g GroupResources) bool { return g.matches(a) }))
	case len(r.NonResourceURLs) > 0:
		return a.Resource == "" && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
			return url == "*" || url == a.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(a.Path, strings.TrimRight(url, "*"))
		})
	}
	return true
}

func (g *GroupResources) matches(a *Attributes) bool {
	if g.Group != a.Group && g.Group != "*" {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, a.Name) {
		return false
	}
	for _, r := range g.Resources {
		resource, sub, hasSub := strings.Cut(r, "/")
		switch {
		case r == "*":
			return true
		case !hasSub:
			if r == a.Resource && a.Subresource == "" {
				return true
			}
		case resource == "*" && a.Subresource != "" && sub == a.Subresource,
			sub == "*" && resource == a.Resource,
			resource == a.Resource && sub == a.Subresource && sub != "":
			return true
		}
	}
	return false
}
