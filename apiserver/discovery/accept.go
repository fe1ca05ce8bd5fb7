package discovery

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A form is an encoding, by its media type.
type form string

const (
	inJSON       form = "application/json"
	inYAML       form = "application/yaml"
	inProtobuf   form = "application/vnd.kubernetes.protobuf"
	inAggregated form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// negotiate returns the form that the Accept headers like best. A document that is
// the whole of /api or /apis has the aggregated form, too.
func negotiate(accept []string, whole bool) (form, bool) {
	if len(accept) == 0 || strings.TrimSpace(strings.Join(accept, "")) == "" {
		return inJSON, true
	}
	var best form
	bestWeight := 0.0
	for clause := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		// The first of equals wins, as with Kubernetes.
		if f, ok := formOf(media, params, whole); ok && weight > bestWeight {
			best, bestWeight = f, weight
		}
	}
	return best, bestWeight > 0
}

func formOf(media string, params map[string]string, whole bool) (form, bool) {
	if params["as"] != "" {
		ok := whole && media == string(inJSON) && params["as"] == "APIGroupDiscoveryList" && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2"
		return inAggregated, ok
	}
	switch media {
	case "*/*", "application/*", string(inJSON):
		return inJSON, true
	case string(inYAML):
		return inYAML, true
	case string(inProtobuf):
		return inProtobuf, true
	}
	return "", false
}

func notAcceptable(accept string, whole bool) error {
	known := []string{string(inJSON), string(inYAML), string(inProtobuf)}
	if whole {
		known = append(known, string(inAggregated))
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(known, ", ") + "; asked for was " + strconv.Quote(accept),
	}}
}
