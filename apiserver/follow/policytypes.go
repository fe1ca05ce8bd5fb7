package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// policyStatusManager is upstream's name of the controller.
const policyStatusManager = "validatingadmissionpolicy-status"

// AdmissionPolicyTypes checks the expressions of ValidatingAdmissionPolicies against the types of the kinds that they match, and
// writes the result to status.typeChecking by api, until ctx is over. Each generation of a policy is checked once. The types are
// those of the OpenAPI documents; documents may be nil.
func AdmissionPolicyTypes(ctx context.Context, c *catalog.Catalog, st Store, api Writer, documents http.Handler, log *slog.Logger) {
	kind := c.Resource(validatingPolicies)
	if kind == nil {
		<-ctx.Done()
		return
	}
	t := typeChecker{catalog: c, api: api, documents: documents, log: log}
	Records(ctx, st, store.Query{Prefix: kind.Prefix("")}, Follower{
		All: func(ctx context.Context, records []store.Record) error {
			for _, rec := range records {
				t.check(ctx, rec)
			}
			return nil
		},
		Changed: func(ctx context.Context, ev store.Event) {
			if !ev.Deleted {
				t.check(ctx, ev.Record)
			}
		},
	})
	<-ctx.Done()
}

// A typeChecker checks admission policies.
type typeChecker struct {
	catalog   *catalog.Catalog
	api       Writer
	documents http.Handler // of OpenAPI; may be nil
	log       *slog.Logger
}

var validatingPolicies = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")

// check checks the policy in a record, unless that was done, and writes the result.
func (t *typeChecker) check(ctx context.Context, rec store.Record) {
	item := rec.Value.(*codec.Item)
	if item.Fault() != nil {
		return
	}
	p, ok := item.Object().(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok || p.Generation <= p.Status.ObservedGeneration || p.DeletionTimestamp != nil {
		return
	}
	status := map[string]any{
		"observedGeneration": p.Generation,
		"typeChecking":       admissionregistrationv1.TypeChecking{ExpressionWarnings: policies.Warnings(p, t.catalog, t.schemas(ctx))},
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(), "kind": "ValidatingAdmissionPolicy",
		"metadata": map[string]any{"name": p.Name, "uid": p.UID}, "status": status,
	})
	if err == nil {
		_, err = t.api.Patch(ctx, validatingPolicies, "", p.Name, types.ApplyYAMLPatchType, body, metav1.PatchOptions{FieldManager: policyStatusManager, Force: new(true)}, "status")
	}
	// A policy that was changed or deleted meanwhile comes again because of that.
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.log.WarnContext(ctx, "cannot write the status of an admission policy", "policy", p.Name, "err", err)
	}
}

// schemas returns the schemas that the server publishes. Documents are read once for all kinds of a policy.
func (t *typeChecker) schemas(ctx context.Context) policies.Schemas {
	documents := map[schema.GroupVersion]map[string]*spec.Schema{}
	return func(kind schema.GroupVersionKind) *spec.Schema {
		gv := kind.GroupVersion()
		doc, read := documents[gv]
		if !read {
			doc = t.published(ctx, gv)
			documents[gv] = doc
		}
		return policies.Expand(doc, kind)
	}
}

// published returns the schemas of the OpenAPI document about a group version; none if there is no document.
func (t *typeChecker) published(ctx context.Context, gv schema.GroupVersion) map[string]*spec.Schema {
	if t.documents == nil {
		return nil
	}
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil
	}
	r.Header.Set("Accept", "application/json")
	answer := kept{header: http.Header{}, code: http.StatusOK}
	t.documents.ServeHTTP(&answer, r)
	var doc struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if answer.code != http.StatusOK || json.Unmarshal(answer.body.Bytes(), &doc) != nil {
		return nil
	}
	return doc.Components.Schemas
}

// kept is an answer in memory.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements [http.ResponseWriter].
func (k *kept) WriteHeader(code int) { k.code = code }

// Write implements [http.ResponseWriter].
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }
