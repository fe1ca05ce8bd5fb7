package apiextensions

import (
	"reflect"
	"slices"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/environment"
)

// rules says which checks apply. A definition that was stored before a check existed can still be updated: a check does
// not apply where the old definition fails it.
type rules struct {
	schema         bool // each version needs a schema
	types          bool // types are those of OpenAPI
	structural     bool // schemas are structural
	pruned         bool // defaults have no unknown fields
	atomicSets     bool // items of sets are atomic
	listKeys       bool // keys of lists are there in each item
	reviewVersions bool // a conversion webhook accepts a version that we send
	bundle         bool // the CA bundle of a conversion webhook is valid

	known      expressions      // CEL expressions that are stored
	same       sets.Set[string] // versions whose schema does not change
	manyFields map[string]bool  // versions that had too many selectable fields, which do not change
	costly     bool             // a single rule may be too costly
}

// newRules returns the rules for a definition. Before is the stored one that it replaces, or nil if it is new.
func newRules(after, before *internal) rules {
	if before == nil {
		return rules{schema: true, types: true, structural: true, pruned: true, atomicSets: true, listKeys: true, reviewVersions: true}
	}
	s := &before.Spec
	return rules{
		schema:         !anyVersionLacksSchema(s),
		types:          !anySchema(s, func(s *schema) bool { return s.Type != "" && !slices.Contains(openAPITypes(), s.Type) }),
		structural:     !anyRoot(s, notStructural),
		pruned:         !anyRoot(s, unpruned),
		atomicSets:     !anySchema(s, func(s *schema) bool { return len(checkSetItems(s, nil)) > 0 }),
		listKeys:       !anySchema(s, func(s *schema) bool { return len(checkListItems(s, nil)) > 0 }),
		reviewVersions: s.Conversion == nil || len(s.Conversion.ConversionReviewVersions) == 0 || slices.ContainsFunc(s.Conversion.ConversionReviewVersions, reviewed),
		bundle:         apiextensions.IsCRDConditionTrue(before, apiextensions.Established) && !hasInvalidBundle(s.Conversion),
		known:          expressionsOf(s),
		same:           sameSchemas(after, before),
		manyFields:     tooManyBefore(after, before),
	}
}

// of returns the rules for the schema of a version.
func (r rules) of(version string) rules {
	r.costly = r.same.Has(version)
	return r
}

func anyVersionLacksSchema(s *spec) bool {
	if s.Validation != nil && s.Validation.OpenAPIV3Schema != nil {
		return false
	}
	return slices.ContainsFunc(s.Versions, func(v version) bool { return v.Schema == nil || v.Schema.OpenAPIV3Schema == nil })
}

func hasDefaults(s *spec) bool {
	return anySchema(s, func(s *schema) bool { return s.Default != nil })
}

func hasExtensions(s *schema) bool {
	return s.XEmbeddedResource || s.XPreserveUnknownFields != nil || s.XIntOrString || len(s.XListMapKeys) > 0 || s.XListType != nil || len(s.XValidations) > 0
}

func notStructural(s *schema) bool {
	structural, err := structuralschema.NewStructural(s)
	return err != nil || len(structuralschema.ValidateStructural(nil, structural)) > 0
}

func unpruned(s *schema) bool {
	if !has(s, func(s *schema) bool { return s.Default != nil }) || notStructural(s) {
		return false
	}
	structural, err := structuralschema.NewStructural(s)
	if err != nil {
		return false
	}
	pruned := structural.DeepCopy()
	return defaulting.PruneDefaults(pruned) == nil && !reflect.DeepEqual(structural, pruned)
}

// schemaOf returns the schema of the version of that name; found says whether there is such a version.
func schemaOf(d *internal, name string) (v *apiextensions.CustomResourceValidation, found bool) {
	i := slices.IndexFunc(d.Spec.Versions, func(v version) bool { return v.Name == name })
	switch {
	case i < 0:
		return nil, false
	case d.Spec.Versions[i].Schema != nil:
		return d.Spec.Versions[i].Schema, true
	}
	return d.Spec.Validation, true
}

func sameSchemas(now, was *internal) sets.Set[string] {
	same := sets.New[string]()
	for _, v := range now.Spec.Versions {
		is, _ := schemaOf(now, v.Name)
		if before, found := schemaOf(was, v.Name); found && apiequality.Semantic.DeepEqual(is, before) {
			same.Insert(v.Name)
		}
	}
	return same
}

func tooManyBefore(now, was *internal) map[string]bool {
	kept := func(is, before []apiextensions.SelectableField) bool {
		return len(before) > maxSelectableFields && apiequality.Semantic.DeepEqual(is, before)
	}
	many := map[string]bool{"": kept(now.Spec.SelectableFields, was.Spec.SelectableFields)}
	for _, v := range now.Spec.Versions {
		if i := slices.IndexFunc(was.Spec.Versions, func(old version) bool { return old.Name == v.Name }); i >= 0 {
			many[v.Name] = kept(v.SelectableFields, was.Spec.Versions[i].SelectableFields)
		}
	}
	return many
}

// expressions are the CEL expressions of a stored definition, which may use a newer Kubernetes' additions to CEL.
type expressions struct{ rules, messages sets.Set[string] }

func expressionsOf(s *spec) expressions {
	e := expressions{sets.New[string](), sets.New[string]()}
	anySchema(s, func(s *schema) bool {
		for _, v := range s.XValidations {
			e.rules.Insert(v.Rule)
			e.messages.Insert(v.MessageExpression)
		}
		return false
	})
	return e
}

// RuleEnv implements cel.EnvLoader.
func (e expressions) RuleEnv(set *environment.EnvSet, expression string) *celgo.Env {
	return environmentFor(set, e.rules.Has(expression))
}

// MessageExpressionEnv implements cel.EnvLoader.
func (e expressions) MessageExpressionEnv(set *environment.EnvSet, expression string) *celgo.Env {
	return environmentFor(set, e.messages.Has(expression))
}

func environmentFor(set *environment.EnvSet, stored bool) *celgo.Env {
	if stored {
		return set.StoredExpressionsEnv()
	}
	return set.NewExpressionsEnv()
}

// anyRoot reports whether yes is true of the schema of a version.
func anyRoot(s *spec, yes func(*schema) bool) bool {
	of := func(v *apiextensions.CustomResourceValidation) bool {
		return v != nil && v.OpenAPIV3Schema != nil && yes(v.OpenAPIV3Schema)
	}
	return of(s.Validation) || slices.ContainsFunc(s.Versions, func(v version) bool { return of(v.Schema) })
}

// anySchema reports whether yes is true of a schema of a version, or of one in it.
func anySchema(s *spec, yes func(*schema) bool) bool {
	return anyRoot(s, func(root *schema) bool { return has(root, yes) })
}

// has reports whether yes is true of s or of a schema in it.
func has(s *schema, yes func(*schema) bool) bool {
	if s == nil {
		return false
	}
	found := yes(s)
	children(s, func(_ relation, child *schema) {
		found = found || has(child, yes)
	})
	return found
}
