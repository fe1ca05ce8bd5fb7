package codec

import (
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Encoding is a way to write objects.
type Encoding uint8

// The encodings. JSON is the zero value and the one of a client that does not
// care.
const (
	JSON Encoding = iota
	YAML
	Protobuf
)

// The media types of the encodings.
const (
	TypeJSON     = "application/json"
	TypeYAML     = "application/yaml"
	TypeProtobuf = "application/vnd.kubernetes.protobuf"

	typeProtobufWatch = TypeProtobuf + ";stream=watch"
)

// allTypes is the list in messages to clients that asked for something else.
const allTypes = TypeJSON + ", " + TypeYAML + ", " + TypeProtobuf

// ContentType returns the media type of answers in e.
func (e Encoding) ContentType() string {
	switch e {
	case JSON:
		return TypeJSON
	case YAML:
		return TypeYAML
	case Protobuf:
		return TypeProtobuf
	}
	panic("codec: unknown encoding " + strconv.Itoa(int(e)))
}

// WatchContentType returns the media type of a stream of watch events in e.
func (e Encoding) WatchContentType() string {
	if e == Protobuf {
		return typeProtobufWatch
	}
	return e.ContentType()
}

// A Form is a client's choice of the shape of an object.
type Form uint8

// The forms, as the "as" parameter of an Accept header names them.
const (
	Whole        Form = iota // the object itself
	Table                    // as=Table: rows to print
	MetadataOnly             // as=PartialObjectMetadata
	MetadataList             // as=PartialObjectMetadataList
)

// A Media is how an answer is to be written.
type Media struct {
	Encoding Encoding
	Form     Form
	Pretty   bool // JSON over several lines, for people
	Beta     bool // the form has meta.k8s.io/v1beta1, which older clients ask for
}

// Offer is the forms of an endpoint's answers.
type Offer struct {
	Forms bool // tables and partial metadata
	Watch bool // a stream of events

	Untyped bool // whole objects have no Go type, and so no protobuf
}

// Negotiate picks the first media type of an Accept header (RFC 9110, 12.5.1, with
// the parameters that Kubernetes defines) that o can serve; among types of different
// quality the best comes first. An empty header means JSON. If none can be served
// the error is a 406 status.
func Negotiate(accept string, o Offer) (Media, error) {
	switch accept { // what nearly all requests say
	case "", "*/*", TypeJSON, "application/json, */*":
		return Media{}, nil
	case TypeProtobuf, TypeProtobuf + "," + TypeJSON:
		if !o.Untyped {
			return Media{Encoding: Protobuf}, nil
		}
	}
	var best Media
	bestQuality, found := 0.0, false
	for rest := accept; rest != ""; {
		var clause string
		clause, rest, _ = strings.Cut(rest, ",")
		m, quality, ok := parseClause(clause, o)
		if ok && quality > bestQuality {
			best, bestQuality, found = m, quality, true
		}
	}
	if !found {
		return Media{}, notAcceptable()
	}
	return best, nil
}

// parseClause reads one media range with its parameters.
func parseClause(clause string, o Offer) (m Media, quality float64, ok bool) {
	name, params, _ := strings.Cut(clause, ";")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case TypeJSON, "*/*", "application/*":
		m.Encoding = JSON
	case TypeYAML:
		if o.Watch {
			return m, 0, false
		}
		m.Encoding = YAML
	case TypeProtobuf:
		m.Encoding = Protobuf
	default:
		return m, 0, false
	}
	quality = 1
	var group, version string
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, ";")
		key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		switch key {
		case "as":
			switch value {
			case "Table":
				m.Form = Table
			case "PartialObjectMetadata":
				m.Form = MetadataOnly
			case "PartialObjectMetadataList":
				m.Form = MetadataList
			default:
				return m, 0, false
			}
		case "g":
			group = value
		case "v":
			version = value
		case "q":
			if q, err := strconv.ParseFloat(value, 64); err == nil {
				quality = q
			}
		case "stream":
			if value != "watch" || !o.Watch {
				return m, 0, false
			}
		case "pretty":
			m.Pretty = value == "1" || value == "true"
		}
	}
	if m.Form == Whole && m.Encoding == Protobuf && o.Untyped {
		return m, 0, false
	}
	if m.Form != Whole {
		m.Beta = version == "v1beta1"
		if !o.Forms || group != metav1.GroupName || version != "v1" && !m.Beta {
			return m, 0, false
		}
		// A table's cells have no protobuf form.
		if m.Form == Table && m.Encoding == Protobuf {
			return m, 0, false
		}
	}
	return m, quality, true
}

// BodyEncoding returns the encoding that a Content-Type header names. An empty
// header means JSON. The error is a 415 status.
func BodyEncoding(contentType string) (Encoding, error) {
	switch contentType { // without a parse
	case "", TypeJSON:
		return JSON, nil
	case TypeProtobuf:
		return Protobuf, nil
	}
	name, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case TypeJSON:
		return JSON, nil
	case TypeYAML, "application/x-yaml", "text/yaml":
		return YAML, nil
	case TypeProtobuf:
		return Protobuf, nil
	}
	return JSON, UnsupportedMediaType("the body of the request was in an unknown format - accepted media types include: " + allTypes)
}

// UnsupportedMediaType returns the 415 status with that message.
func UnsupportedMediaType(message string) error {
	return status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, message)
}

func notAcceptable() error {
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+allTypes)
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}
