package operation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// Annotations of audit events, as upstream's.
const (
	auditDecision = "authorization.k8s.io/decision"
	auditReason   = "authorization.k8s.io/reason"
)

// annotateDecision adds the decision of the authorizer to the record of a request.
func annotateDecision(ctx context.Context, d rbac.Decision) {
	r := audit.From(ctx)
	if r == nil {
		return
	}
	decision := "forbid"
	if d.Allowed {
		decision = "allow"
	}
	r.Annotate(auditDecision, decision)
	r.Annotate(auditReason, d.Reason)
}

// Record adds the answer to the record of a request.
func (answer Result) Record(r *audit.Record) {
	if s, ok := answer.Made.(*metav1.Status); ok && answer.Item == nil {
		r.Status(s)
	}
	if !r.WantsAnswer() {
		return
	}
	if answer.Item != nil && !r.OmitsManagedFields() {
		if body, err := answer.Item.JSON(); err == nil {
			r.AnsweredJSON(body)
			return
		}
	}
	r.Answered(answer.Object())
}

// Record adds a list of objects of a kind to the record of a request.
func (l *Listing) Record(r *audit.Record, kind *catalog.Kind) {
	if !r.WantsAnswer() {
		return
	}
	var body bytes.Buffer
	w := bufio.NewWriter(&body)
	if err := errors.Join(codec.WriteList(w, codec.Media{Encoding: codec.JSON}, kind, l.Meta, l.Items), w.Flush()); err != nil {
		return // an item that cannot be encoded is not sent either
	}
	if !r.OmitsManagedFields() {
		r.AnsweredJSON(body.Bytes())
		return
	}
	var list map[string]any
	if json.Unmarshal(body.Bytes(), &list) != nil {
		return
	}
	items, _ := list["items"].([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			if meta, ok := object["metadata"].(map[string]any); ok {
				delete(meta, "managedFields")
			}
		}
	}
	if short, err := json.Marshal(list); err == nil {
		r.AnsweredJSON(short)
	}
}

// RecordPatch adds a patch to the record of a request.
func RecordPatch(r *audit.Record, kind types.PatchType, body []byte) {
	if r == nil {
		return
	}
	if kind == types.ApplyYAMLPatchType {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return
		}
	}
	r.SentJSON(body)
}
