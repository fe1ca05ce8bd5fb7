package audit

import (
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	apiVersion = "audit.k8s.io/v1"

	// HeaderID is the header with the ID of a request's events, in requests and answers.
	HeaderID = "Audit-Id"
)

// A Level says how much of a request is recorded.
type Level string

// The levels, each with all that the ones before it have.
const (
	None            Level = "None"
	Metadata        Level = "Metadata"
	Request         Level = "Request"         // with the request's body
	RequestResponse Level = "RequestResponse" // and the answer's
)

// rank orders levels.
func (l Level) rank() int {
	switch l {
	case Metadata:
		return 1
	case Request:
		return 2
	case RequestResponse:
		return 3
	case None:
	}
	return 0
}

// A Stage is where a request is when an event is recorded.
type Stage string

// The stages.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted" // of watches and streams alone: the headers are sent, the body is not
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

// An Event is the record of a request at a stage. The fields are upstream's.
type Event struct {
	metav1.TypeMeta `json:",inline"`

	Level                    Level                      `json:"level"`
	AuditID                  types.UID                  `json:"auditID"`
	Stage                    Stage                      `json:"stage"`
	RequestURI               string                     `json:"requestURI"`
	Verb                     string                     `json:"verb"`
	User                     authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser         *authenticationv1.UserInfo `json:"impersonatedUser,omitempty"`
	SourceIPs                []string                   `json:"sourceIPs,omitempty"`
	UserAgent                string                     `json:"userAgent,omitempty"`
	ObjectRef                *ObjectReference           `json:"objectRef,omitempty"`
	ResponseStatus           *metav1.Status             `json:"responseStatus,omitempty"`
	RequestObject            json.RawMessage            `json:"requestObject,omitempty"`
	ResponseObject           json.RawMessage            `json:"responseObject,omitempty"`
	RequestReceivedTimestamp metav1.MicroTime           `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime           `json:"stageTimestamp"`
	Annotations              map[string]string          `json:"annotations,omitempty"`
}

// An ObjectReference names the object of a request.
type ObjectReference struct {
	Resource        string    `json:"resource,omitempty"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             types.UID `json:"uid,omitempty"`
	APIGroup        string    `json:"apiGroup,omitempty"`
	APIVersion      string    `json:"apiVersion,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Subresource     string    `json:"subresource,omitempty"`
}

// A Policy selects records: the first rule that matches a request counts, and a request without one is not recorded.
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Rules             []Rule  `json:"rules"`
	OmitStages        []Stage `json:"omitStages,omitempty"` // in addition to those of each rule
	OmitManagedFields bool    `json:"omitManagedFields,omitempty"`
}

// A Rule matches requests by all of its fields that are not empty.
type Rule struct {
	Level             Level            `json:"level"`
	Users             []string         `json:"users,omitempty"`
	UserGroups        []string         `json:"userGroups,omitempty"`
	Verbs             []string         `json:"verbs,omitempty"`
	Resources         []GroupResources `json:"resources,omitempty"`
	Namespaces        []string         `json:"namespaces,omitempty"` // "" stands for objects without one
	NonResourceURLs   []string         `json:"nonResourceURLs,omitempty"`
	OmitStages        []Stage          `json:"omitStages,omitempty"`
	OmitManagedFields *bool            `json:"omitManagedFields,omitempty"` // nil means as in the policy
}

// GroupResources are resources of a group.
type GroupResources struct {
	Group         string   `json:"group,omitempty"`
	Resources     []string `json:"resources,omitempty"` // RESOURCE, RESOURCE/SUBRESOURCE, RESOURCE/*, */SUBRESOURCE, *
	ResourceNames []string `json:"resourceNames,omitempty"`
}
