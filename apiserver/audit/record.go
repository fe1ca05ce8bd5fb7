package audit

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Record is the data of a request that is recorded. A nil Record is that of a request that is not: its methods do
// nothing. It is safe for concurrent use.
type Record struct {
	auditor *Auditor
	scope   scope
	long    bool // it is a watch or a stream

	mu    sync.Mutex
	event Event // guarded by mu
	ended bool  // guarded by mu; nothing more is recorded
}

const (
	maxUserAgent = 1024 // of which more is cut off
	cutUserAgent = "...TRUNCATED"
)

// Begin returns the record of a request that has these attributes, or nil if it is not recorded.
func (a *Auditor) Begin(at *Attributes) *Record {
	if a == nil {
		return nil
	}
	s := a.policy.decide(at)
	a.levels.WithLabelValues(string(s.level)).Inc()
	if s.level == None {
		return nil
	}
	r := &Record{auditor: a, scope: s}
	r.event = Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: apiVersion}, Level: s.level,
		Verb: at.Verb, RequestReceivedTimestamp: metav1.NewMicroTime(time.Now()),
	}
	if at.User != nil {
		r.event.User = *userInfo(at.User)
	}
	if at.Resource != "" {
		r.event.ObjectRef = &ObjectReference{
			Resource: at.Resource, Namespace: at.Namespace, Name: at.Name, APIGroup: at.Group, APIVersion: at.Version, Subresource: at.Subresource,
		}
		r.long = at.Verb == "watch" || slices.Contains([]string{"log", "exec", "attach", "portforward", "proxy"}, at.Subresource)
	}
	return r
}

func userInfo(u *auth.User) *authenticationv1.UserInfo {
	info := &authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// Over adds where a request over HTTP comes from, and the ID of its events.
func (r *Record) Over(req *http.Request, id string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.AuditID, r.event.RequestURI, r.event.UserAgent = types.UID(id), req.URL.RequestURI(), req.UserAgent()
	if len(r.event.UserAgent) > maxUserAgent {
		r.event.UserAgent = r.event.UserAgent[:maxUserAgent] + cutUserAgent
	}
	for _, ip := range utilnet.SourceIPs(req) {
		r.event.SourceIPs = append(r.event.SourceIPs, ip.String())
	}
}

// Inside adds where a request in this process comes from.
func (r *Record) Inside(uri, agent string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.AuditID, r.event.RequestURI, r.event.UserAgent = types.UID(NewID()), uri, agent
	r.event.SourceIPs = []string{"127.0.0.1"}
}

// NewID returns the ID of the events of a request: a random UUID of version 4 (RFC 9562, 5.4). IDs differ, but a client that has seen
// many could guess further ones: nothing may rely on their secrecy, because clients may choose them as well.
func NewID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version
	id[8] = id[8]&0x3f | 0x80 // variant
	var text [36]byte
	hex.Encode(text[:], id[:4])
	at := 8
	for _, part := range [][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		text[at] = '-'
		at += 1 + hex.Encode(text[at+1:], part)
	}
	return string(text[:])
}

// Impersonates adds the user as whom the request is served.
func (r *Record) Impersonates(u *auth.User) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ImpersonatedUser = userInfo(u)
}

// Annotate adds an annotation. The first value of a key stays.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.event.Annotations[key]; ok {
		return
	}
	if r.event.Annotations == nil {
		r.event.Annotations = map[string]string{}
	}
	r.event.Annotations[key] = value
}

// AnnotateFrom adds an annotation to a request that is recorded at this level or a higher one: it has a part of a body.
func (r *Record) AnnotateFrom(level Level, key, value string) {
	if r != nil && r.scope.level.rank() >= level.rank() {
		r.Annotate(key, value)
	}
}

// Sent adds the object in the request: its name at each level, and the whole from the level Request on. The caller may
// change the object afterwards.
func (r *Record) Sent(obj runtime.Object) {
	if r == nil {
		return
	}
	var body []byte
	if r.scope.level.rank() >= Request.rank() {
		body = r.encode(obj)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, err := meta.Accessor(obj); err == nil && r.event.ObjectRef != nil {
		fill(&r.event.ObjectRef.Namespace, m.GetNamespace())
		fill(&r.event.ObjectRef.Name, m.GetName())
		fill(&r.event.ObjectRef.UID, m.GetUID())
		fill(&r.event.ObjectRef.ResourceVersion, m.GetResourceVersion())
	}
	r.event.RequestObject = body
}

func fill[T ~string](to *T, value T) {
	if *to == "" {
		*to = value
	}
}

// SentJSON adds a body in JSON, such as a patch.
func (r *Record) SentJSON(body []byte) {
	if r == nil || r.scope.level.rank() < Request.rank() || !json.Valid(body) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.RequestObject = slices.Clone(body)
}

// WantsAnswer reports whether the body of the answer is recorded.
func (r *Record) WantsAnswer() bool { return r != nil && r.scope.level == RequestResponse }

// OmitsManagedFields reports whether bodies are recorded without managed fields.
func (r *Record) OmitsManagedFields() bool { return r != nil && r.scope.omitFields }

// Answered adds the object in the answer, from the level RequestResponse on. The object is not changed.
func (r *Record) Answered(obj runtime.Object) {
	if r.WantsAnswer() {
		r.AnsweredJSON(r.encode(obj))
	}
}

// AnsweredJSON adds a body in JSON, which is not changed.
func (r *Record) AnsweredJSON(body []byte) {
	if !r.WantsAnswer() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseObject = body
}

// encode returns an object in JSON, or nil if it has none.
func (r *Record) encode(obj runtime.Object) []byte {
	if r.scope.omitFields {
		obj = withoutManagedFields(obj)
	}
	body, err := json.Marshal(obj)
	if err != nil {
		r.auditor.failed("encode", err, 0)
		return nil
	}
	return body
}

func withoutManagedFields(obj runtime.Object) runtime.Object {
	m, err := meta.Accessor(obj)
	switch {
	case err == nil && len(m.GetManagedFields()) == 0:
		return obj
	case err != nil && !meta.IsListType(obj):
		return obj
	}
	obj = obj.DeepCopyObject()
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		return obj
	}
	_ = meta.EachListItem(obj, func(item runtime.Object) error {
		if m, err := meta.Accessor(item); err == nil {
			m.SetManagedFields(nil)
		}
		return nil
	})
	return obj
}

// Status adds the status that the request is answered with.
func (r *Record) Status(s *metav1.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
}

// ErrNotStored is the fault of a request whose event a sink in the mode blocking-strict could not store.
var ErrNotStored = errors.New("failed to store audit event")

// Received records that the request has come. It reports false if the request must be refused, with [ErrNotStored].
func (r *Record) Received() bool { return r == nil || r.stage(RequestReceived) }

// Started notes the code of the answer, and records that of a watch or a stream.
func (r *Record) Started(code int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.event.ResponseStatus == nil {
		r.event.ResponseStatus = &metav1.Status{}
	}
	r.event.ResponseStatus.Code = int32(code)
	r.mu.Unlock()
	if r.long {
		r.stage(ResponseStarted)
	}
}

// Refused records the answer to a request without a good credential, and nothing later.
func (r *Record) Refused(code int) {
	if r != nil {
		r.long = true
		r.Started(code)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = true
	}
}

// Complete records that the answer is complete. Nothing is recorded after it.
func (r *Record) Complete() {
	if r == nil {
		return
	}
	r.mu.Lock()
	early := r.event.ResponseStatus == nil
	if early {
		r.event.ResponseStatus = &metav1.Status{Code: http.StatusOK, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	}
	r.mu.Unlock()
	if early && r.long {
		r.stage(ResponseStarted)
	}
	r.stage(ResponseComplete)
	r.end()
}

// Panicked records that the server had a fault. Nothing is recorded after it.
func (r *Record) Panicked(what string) {
	if r == nil {
		return
	}
	r.Status(&metav1.Status{Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: "APIServer panic'd: " + what})
	r.stage(Panic)
	r.end()
}

func (r *Record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// stage records the event of a stage. It reports false if a strict sink did not take it.
func (r *Record) stage(s Stage) bool {
	if slices.Contains(r.scope.omitStages, s) {
		return true
	}
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return true
	}
	r.event.Stage, r.event.StageTimestamp = s, r.event.RequestReceivedTimestamp
	if s != RequestReceived {
		r.event.StageTimestamp = metav1.NewMicroTime(time.Now())
	}
	e := r.event
	data, err := json.Marshal(&e)
	r.mu.Unlock()
	if err != nil {
		r.auditor.failed("encode", err, 1)
		return true
	}
	return r.auditor.record(&e, data)
}

type contextKey struct{}

// With returns a context that carries a record.
func With(ctx context.Context, r *Record) context.Context {
	if r == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the record that a context carries, or nil.
func From(ctx context.Context) *Record {
	r, _ := ctx.Value(contextKey{}).(*Record)
	return r
}

// legacy returns an event in upstream's older format of the log: one line of text.
func legacy(e *Event) string {
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	list := func(all []string) string {
		if len(all) == 0 {
			return ""
		}
		quoted := make([]string, len(all))
		for i, one := range all {
			quoted[i] = `"` + strings.ReplaceAll(one, `"`, `\"`) + `"`
		}
		return strings.Join(quoted, ",")
	}
	asUser, asGroups := "<self>", "<lookup>"
	if u := e.ImpersonatedUser; u != nil {
		asUser = u.Username
		if u.Groups != nil {
			asGroups = list(u.Groups)
		}
	}
	namespace, ip, response := "", "", "<deferred>"
	if e.ObjectRef != nil {
		namespace = e.ObjectRef.Namespace
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	if e.ResponseStatus != nil {
		response = itoa(e.ResponseStatus.Code)
	}
	var b strings.Builder
	b.WriteString(e.RequestReceivedTimestamp.Format(time.RFC3339Nano) + " AUDIT:")
	for _, pair := range [][2]string{
		{"id", string(e.AuditID)},
		{"stage", string(e.Stage)},
		{"ip", or(ip, "<unknown>")},
		{"method", e.Verb},
		{"user", or(e.User.Username, "<none>")},
		{"groups", or(list(e.User.Groups), "<none>")},
		{"as", asUser},
		{"asgroups", asGroups},
		{"user-agent", e.UserAgent},
		{"namespace", or(namespace, "<none>")},
		{"uri", e.RequestURI},
		{"response", response},
	} {
		b.WriteString(" " + pair[0] + "=" + quote(pair[1]))
	}
	return b.String()
}
