package admissioncel

import (
	"maps"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// The variables of expressions.
const (
	varObject          = "object"
	varOldObject       = "oldObject"
	varParams          = "params"
	varRequest         = "request"
	varNamespace       = "namespaceObject"
	varAuthorizer      = "authorizer"
	varRequestResource = "authorizer.requestResource"
	varVariables       = "variables"
)

// always is a version that every environment has: the declarations of admission are part of all of them.
var always = version.MajorMinor(1, 0)

// A fieldList declares the fields of a type, in pairs of name and type.
type fieldList map[string]*apicel.DeclType

// objectType declares a type whose fields are all required, except those in optional.
func objectType(name string, required, optional fieldList) *apicel.DeclType {
	fields := map[string]*apicel.DeclField{}
	for f, t := range required {
		fields[f] = apicel.NewDeclField(f, t, true, nil, nil)
	}
	for f, t := range optional {
		fields[f] = apicel.NewDeclField(f, t, false, nil, nil)
	}
	return apicel.NewObjectType(name, fields)
}

func listOf(t *apicel.DeclType) *apicel.DeclType { return apicel.NewListType(t, -1) }
func mapOf(t *apicel.DeclType) *apicel.DeclType  { return apicel.NewMapType(apicel.StringType, t, -1) }

// texts returns fields of the type string.
func texts(names ...string) fieldList {
	f := fieldList{}
	for _, n := range names {
		f[n] = apicel.StringType
	}
	return f
}

func with(f, more fieldList) fieldList {
	maps.Copy(f, more)
	return f
}

// requestType is the type of request: an AdmissionRequest without its uid, and without the objects, which are
// variables of their own.
func requestType() *apicel.DeclType {
	gvk := objectType("kubernetes.GroupVersionKind", texts("group", "version", "kind"), nil)
	gvr := objectType("kubernetes.GroupVersionResource", texts("group", "version", "resource"), nil)
	user := objectType("kubernetes.UserInfo", nil, with(texts("username", "uid"), fieldList{
		"groups": listOf(apicel.StringType),
		"extra":  mapOf(listOf(apicel.StringType)),
	}))
	return objectType("kubernetes.AdmissionRequest",
		with(texts("name", "operation"), fieldList{
			"kind": gvk, "requestKind": gvk, "resource": gvr, "requestResource": gvr, "userInfo": user,
		}),
		with(texts("subResource", "requestSubResource", "namespace"), fieldList{"dryRun": apicel.BoolType, "options": apicel.DynType}))
}

// namespaceType is the type of namespaceObject, with the fields of a Namespace that policies may read.
func namespaceType() *apicel.DeclType {
	condition := objectType("kubernetes.NamespaceCondition",
		with(texts("status", "type", "message", "reason"), fieldList{"lastTransitionTime": apicel.TimestampType}), nil)
	metadata := objectType("kubernetes.NamespaceMetadata",
		with(texts("name", "generateName", "namespace", "UID", "resourceVersion"), fieldList{
			"labels":                     mapOf(apicel.StringType),
			"annotations":                mapOf(apicel.StringType),
			"creationTimestamp":          apicel.TimestampType,
			"deletionTimestamp":          apicel.TimestampType,
			"deletionGracePeriodSeconds": apicel.IntType,
			"generation":                 apicel.IntType,
			"finalizers":                 listOf(apicel.StringType),
		}), nil)
	return objectType("kubernetes.Namespace", fieldList{
		"metadata": metadata,
		"spec":     objectType("kubernetes.NamespaceSpec", fieldList{"finalizers": listOf(apicel.StringType)}, nil),
		"status":   objectType("kubernetes.NamespaceStatus", with(texts("phase"), fieldList{"conditions": listOf(condition)}), nil),
	}, nil)
}

// Declarations say which variables and types an expression may use beside the common ones.
type Declarations struct {
	Params     bool // params
	Authorizer bool // authorizer and authorizer.requestResource
	Patches    bool // Object{}, JSONPatch{} and jsonpatch.escapeKey
}

// base returns the environment of expressions without variables of a policy. Environments are expensive, so each is
// made once, when it is needed first.
func base(d Declarations) (*environment.EnvSet, error) {
	made, _ := environments.LoadOrStore(d, sync.OnceValues(func() (*environment.EnvSet, error) {
		return d.extend(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), Types{})
	}))
	return made.(func() (*environment.EnvSet, error))()
}

var environments sync.Map // by Declarations; immutable values that take milliseconds to make

// Types are the types of objects that are known in advance. The zero Types means that any object may come, as in
// the evaluation of a request; a compiler for other types checks expressions against these.
type Types struct {
	Object, Params *apicel.DeclType
}

func (d Declarations) extend(from *environment.EnvSet, types Types) (*environment.EnvSet, error) {
	request, namespace := requestType(), namespaceType()
	known := []*apicel.DeclType{request, namespace}
	typeOf := func(t *apicel.DeclType) *cel.Type {
		if t == nil {
			return cel.DynType
		}
		known = append(known, t)
		return t.CelType()
	}
	object := typeOf(types.Object)
	options := []cel.EnvOption{
		cel.Variable(varObject, object),
		cel.Variable(varOldObject, object),
		cel.Variable(varRequest, request.CelType()),
		cel.Variable(varNamespace, namespace.CelType()),
	}
	if d.Params {
		options = append(options, cel.Variable(varParams, typeOf(types.Params)))
	}
	if d.Authorizer {
		options = append(options, cel.Variable(varAuthorizer, library.AuthorizerType), cel.Variable(varRequestResource, library.ResourceCheckType))
	}
	env, err := from.Extend(
		environment.VersionedOptions{IntroducedVersion: always, EnvOptions: append(options, boundedQuantities()...), DeclTypes: known},
		environment.StrictCostOpt,
	)
	if err != nil || !d.Patches {
		return env, err
	}
	return env.Extend(environment.VersionedOptions{IntroducedVersion: always, EnvOptions: []cel.EnvOption{
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
		environment.UnversionedLib(library.JSONPatch),
	}})
}
