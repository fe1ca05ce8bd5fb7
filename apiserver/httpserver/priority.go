package httpserver

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
)

// newDispatcher returns a dispatcher that uses the objects which every cluster starts with, until it
// follows the stored ones.
func newDispatcher(seats int) *priority.Dispatcher {
	d := priority.New(seats)
	d.Configure(priority.Config{
		Schemas: append(flowcontrol.MandatorySchemas(), flowcontrol.SuggestedSchemas()...),
		Levels:  append(flowcontrol.MandatoryLevels(), flowcontrol.SuggestedLevels()...),
	})
	return d
}

// The response headers that name the schema and the priority level of a request: in the form that header maps need, and in that of
// HTTP/2, which has to be made of the other one for each answer.
const (
	headerSchema = "X-Kubernetes-Pf-Flowschema-Uid"
	headerLevel  = "X-Kubernetes-Pf-Prioritylevel-Uid"

	headerSchemaHTTP2 = "x-kubernetes-pf-flowschema-uid"
	headerLevelHTTP2  = "x-kubernetes-pf-prioritylevel-uid"
)

// classify finds the class of the request, and says in the answer which it is.
func (s *Server) classify(x *exchange, r priority.Request) {
	last := &s.rules
	if x.conn != nil {
		last = &x.conn.rules
	}
	known := last.Load()
	rules := s.priority.User(known, x.user)
	if rules != known {
		last.Store(rules)
	}
	x.seat.asked = r
	x.seat.class = rules.Classify(&x.seat.asked)
	h := x.Header()
	if x.r.ProtoMajor == 2 {
		h[headerSchemaHTTP2], h[headerLevelHTTP2] = x.seat.class.Headers()
	} else {
		h[headerSchema], h[headerLevel] = x.seat.class.Headers()
	}
}

// seatsOf returns how many seats a list takes, or the first state of a watch: more if it reads many objects.
func (s *Server) seatsOf(x *exchange, t *operation.Target, verb string) int {
	objects, ok := s.opts.Store.(counter)
	if !ok {
		return 1
	}
	n := objects.Count(t.Kind.Prefix(""))
	if priority.Seats(n) == 1 {
		return 1
	}
	q := x.query()
	if verb == operation.VerbWatch {
		if rv := q.Get("resourceVersion"); rv != "" && rv != "0" && !isTrue(q, "sendInitialEvents") {
			return 1
		}
	}
	if t.Name != "" || strings.HasPrefix(q.Get("fieldSelector"), metav1.ObjectNameField+"=") {
		return 1
	}
	if limit, err := number(q, "limit"); err == nil && limit != nil && *limit > 0 && *limit < int64(n) {
		n = int(*limit)
	}
	return priority.Seats(n)
}

// debugPriority begins the paths of the tables for debugging.
const debugPriority = "/debug/api_priority_and_fairness/"

// serveDump answers /debug/api_priority_and_fairness/NAME with a table of the state of the priority levels.
func (s *Server) serveDump(x *exchange, table string) {
	var b strings.Builder
	if !s.priority.Dump(&b, table) {
		x.notFoundPage()
		return
	}
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	x.writeText(b.String())
}

// Configure makes the server use flow schemas and priority levels. Before that it uses the ones with which every cluster starts.
func (s *Server) Configure(c priority.Config) { s.priority.Configure(c) }
