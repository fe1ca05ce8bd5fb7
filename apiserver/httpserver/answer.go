package httpserver

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
)

// onePiece is the size in which lists, and events that come at once, are sent: it fits, with the header of its HTTP/2 frame (RFC 9113, 4.1), into one TLS
// record (RFC 8446, 5.1), which Go sends by a system call of its own. A frame of the size
// that HTTP/2 allows, 16 KiB, would need a second record for its last nine bytes.
const onePiece = 16<<10 - 9

// noCache keeps API answers out of caches, as Kubernetes does.
var noCache = []string{"no-cache, private"} // a constant that header maps share

// contentTypes are the values of Content-Type headers by encoding, shared for the same
// reason.
var contentTypes = [...][]string{
	codec.JSON:     {codec.TypeJSON},
	codec.YAML:     {codec.TypeYAML},
	codec.Protobuf: {codec.TypeProtobuf},
}

// asStatus returns the status that an error of an operation, or the refusal of a request, carries.
func asStatus(err error) *metav1.Status {
	if refused := (*fairness.RefusedError)(nil); errors.As(err, &refused) {
		err = apierrors.NewTooManyRequests(refused.Error(), fairness.RetryAfter)
	} else if noSeat := (*priority.RefusedError)(nil); errors.As(err, &noSeat) {
		err = apierrors.NewTooManyRequests(noSeat.Error(), priority.RetryAfter)
	}
	return operation.StatusOf(err)
}

// send gives back the seat and writes a whole answer. Errors are ignored: the client has closed the connection.
func (x *exchange) send(code int, e codec.Encoding, body []byte) {
	x.seat.release()
	h := x.Header()
	h["Content-Type"] = contentTypes[e]
	h["Cache-Control"] = noCache
	if code == http.StatusOK && len(body) >= compressFrom && x.compresses() {
		c := &compressor{x: x}
		defer c.release()
		if _, err := c.Write(body); err == nil {
			c.end()
		}
		return
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.WriteHeader(code)
	_, _ = x.Write(body)
}

func (x *exchange) writeText(text string) { _, _ = io.WriteString(x, text) }

// fail answers with the status of err.
func (x *exchange) fail(err error) {
	status := asStatus(err)
	x.audit.Status(status)
	x.audit.Answered(status)
	accept := x.r.Header.Get("Accept")
	m, negotiationErr := codec.Negotiate(accept, codec.Offer{Forms: true})
	if negotiationErr != nil {
		m, _ = codec.Negotiate(accept, codec.Offer{Forms: true, Watch: true}) // or else plain JSON
	}
	m.Form, m.Pretty = codec.Whole, m.Encoding == codec.JSON && x.wantsPretty()
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		x.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	if x.unread() {
		x.Header().Set("Connection", "close") // or net/http would read the body before it sends the answer
	}
	body, err := codec.Encode(m, status)
	if err != nil {
		http.Error(x, status.Message, int(status.Code))
		return
	}
	x.send(int(status.Code), m.Encoding, body)
}

// answer writes the result of an operation in the form that the client wants.
func (x *exchange) answer(m codec.Media, r operation.Result, t *operation.Target) {
	x.warn(r.Warnings)
	code := http.StatusOK
	if r.Created {
		code = http.StatusCreated
	}
	var body []byte
	r, err := r.In(x.r.Context(), t.Kind)
	switch {
	case err != nil:
	case m.Form != codec.Whole:
		var obj runtime.Object
		if obj, err = x.reshape(m.Form, r, t); err == nil {
			body, err = codec.Encode(m, obj)
			x.audit.Answered(obj)
		}
	case r.Item != nil:
		body, err = codec.EncodeItem(m, r.Item)
		r.Record(x.audit)
	default:
		body, err = codec.Encode(m, r.Made)
		r.Record(x.audit)
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.send(code, m.Encoding, body)
}

// If the warnings of an answer have more characters than maxWarningText, each is cut to maxLongWarning, and there are as many as
// fit. The limits are upstream's.
const (
	maxWarningText = 4096
	maxLongWarning = 256
)

// maxWarnings is how many warnings are kept for an answer. More cannot fit, because each has a character.
const maxWarnings = maxWarningText

// warn adds Warning headers (RFC 7234, 5.5), which clients show their users. Duplicates are left out.
func (x *exchange) warn(warnings []string) {
	if len(warnings) == 0 {
		return
	}
	for _, text := range warnings {
		if len(x.warnings) == maxWarnings {
			break
		}
		if text != "" && !slices.Contains(x.warnings, text) {
			x.warnings = append(x.warnings, text)
		}
	}
	total, written := 0, 0
	for _, text := range x.warnings {
		total += utf8.RuneCountInString(text)
	}
	x.Header().Del("Warning")
	for _, text := range x.warnings {
		if letters := []rune(text); total > maxWarningText && len(letters) > maxLongWarning {
			text = string(letters[:maxLongWarning])
		}
		if written += utf8.RuneCountInString(text); written > maxWarningText {
			return
		}
		if h, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			x.Header().Add("Warning", h)
		}
	}
}
