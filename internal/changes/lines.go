package changes

import "time"

// Path is the path of the API server that serves the history of the cluster: a [Header], a [Change] for each write, and
// an [End], one JSON value per line.
const Path = "/sampan/v1/history"

// AtHeader is the header of answers with an earlier state of objects, see package apiserver/past.
const AtHeader = "Sampan-At"

// A Header is the first line.
type Header struct {
	From     uint64    `json:"from"`              // the states from this revision on are known
	Since    time.Time `json:"since,omitzero"`    // of the first write with a time
	Revision uint64    `json:"revision"`          // the newest one when the answer was begun
	Omitted  []string  `json:"omitted,omitempty"` // resources that the user may not list, such as "secrets"
}

// Operations of a [Change].
const (
	Created = "created"
	Changed = "changed"
	Deleted = "deleted"
)

// A Change is one write.
type Change struct {
	Revision  uint64    `json:"revision"`
	Time      time.Time `json:"time,omitzero"` // zero: it was saved before the history was turned on
	User      string    `json:"user,omitempty"`
	Agent     string    `json:"agent,omitempty"` // the field manager or the program
	Operation string    `json:"operation"`

	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	Fields []Field `json:"fields,omitempty"` // of a change
	More   int     `json:"more,omitempty"`   // further fields that changed
	Note   string  `json:"note,omitempty"`   // why there are no fields, such as that the values were purged
}

// An End is the last line. An answer without it is not complete.
type End struct {
	End     bool `json:"end"`
	Earlier int  `json:"earlier,omitempty"` // writes before the first line that the limit left out
}
