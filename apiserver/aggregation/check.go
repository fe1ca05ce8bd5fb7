package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/internal/run"
)

// mostAttempts is how many servers of a Service a check asks at once, as upstream's.
const mostAttempts = 5

// check finds out whether a version is available, and returns the condition and the address of a server that has answered.
func (s *Service) check(ctx context.Context) (registrationv1.APIServiceCondition, string) {
	fail := func(status registrationv1.ConditionStatus, reason, message string) (registrationv1.APIServiceCondition, string) {
		return registrationv1.APIServiceCondition{
			Type: registrationv1.Available, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		}, ""
	}
	at, err := s.locate(ctx)
	if err != nil {
		return fail(registrationv1.ConditionUnknown, "ServiceAccessError", fmt.Sprintf("service/%s in %q cannot be checked due to: %v", s.spec.Service.Name, s.spec.Service.Namespace, err))
	}
	s.at.Store(&at)
	if at.reason != "" {
		return fail(registrationv1.ConditionFalse, at.reason, at.message)
	}
	address, err := s.attempt(ctx, at.addresses[:min(len(at.addresses), mostAttempts)])
	if err != nil {
		return fail(registrationv1.ConditionFalse, "FailedDiscoveryCheck", err.Error())
	}
	c, _ := fail(registrationv1.ConditionTrue, "Passed", "all checks passed")
	return c, address
}

// attempt asks all of these servers at once for the path that each must serve. It returns the address of the first one that
// answers well, or the error of the first address.
func (s *Service) attempt(ctx context.Context, addresses []string) (string, error) {
	type result struct {
		i   int
		err error
	}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	results := make(chan result, len(addresses))
	for i, address := range addresses {
		g.Go(func(ctx context.Context) {
			target := "https://" + address + s.root()
			r, err := s.ask(ctx, kubeAggregator, http.MethodGet, address, s.root(), nil)
			if err == nil && (r.code < 200 || r.code > 299) {
				err = fmt.Errorf("bad status from %s: %d", target, r.code)
			}
			if err != nil {
				err = fmt.Errorf("failing or missing response from %s: %w", target, err)
			}
			results <- result{i, err}
		})
	}
	errs := make([]error, len(addresses))
	for range addresses {
		r := <-results
		if r.err == nil {
			return addresses[r.i], nil
		}
		errs[r.i] = r.err
	}
	return "", errs[0]
}

// acceptAggregated asks for the aggregated form of discovery.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// A description is a server's answers about a version.
type description struct {
	etag     string // of the aggregated document
	document apidiscovery.APIVersionDiscovery
	openAPI  string

	swagger    *Swagger
	swaggerTag string
}

// describe reads a server's description of a version. before is the last one.
func (s *Service) describe(ctx context.Context, address string, before description) (description, error) {
	header := http.Header{"Accept": {acceptAggregated}}
	if before.etag != "" {
		header.Set("If-None-Match", before.etag)
	}
	now, tooLarge := description{}, false
	all, err := s.ask(ctx, kubeAggregator, http.MethodGet, address, "/apis", header)
	switch {
	case err != nil:
		return before, err
	case all.code == http.StatusNotModified && before.etag != "":
		now.etag, now.document = before.etag, before.document
	case all.code == http.StatusServiceUnavailable:
		return before, fmt.Errorf("service %s returned non-success response code: %d", s.name, all.code)
	case all.code == http.StatusOK && isAggregated(all.contentType):
		now.etag, tooLarge = all.etag, len(all.body) > largestDocument
		now.document, err = parseAggregated(all.body, s.gv)
	default:
		var list *reply
		if list, err = s.ask(ctx, kubeAggregator, http.MethodGet, address, s.root(), http.Header{"Accept": {"application/json"}}); err != nil {
			return before, err
		}
		if list.code != http.StatusOK {
			return before, fmt.Errorf("bad status from %s: %d", s.root(), list.code)
		}
		tooLarge = len(list.body) > largestDocument
		now.document, err = parseList(list.body, s.gv)
	}
	if err == nil && tooLarge {
		err = fmt.Errorf("it is larger than %d bytes", largestDocument)
	}
	if err != nil {
		return before, fmt.Errorf("discovery document of %s: %w", s.name, err)
	}
	// A server without OpenAPI is complete.
	if index, err := s.ask(ctx, kubeAggregator, http.MethodGet, address, "/openapi/v3", http.Header{"Accept": {"application/json"}}); err == nil && index.code == http.StatusOK {
		if now.openAPI, err = parseOpenAPI(index.body, s.gv); err != nil {
			now.openAPI = ""
		}
	}
	now.swagger, now.swaggerTag = before.swagger, before.swaggerTag
	if answer, err := s.ask(ctx, kubeAggregator, http.MethodGet, address, "/openapi/v2", asked(before.swaggerTag)); err == nil {
		now.swagger, now.swaggerTag = swagger(answer, s.gv, before.swagger, before.swaggerTag)
	}
	return now, nil
}

// isAggregated reports whether a content type is that of the aggregated form.
func isAggregated(contentType string) bool {
	parameters := url.Values{}
	for part := range strings.SplitSeq(contentType, ";") {
		if key, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
			parameters.Set(strings.ToLower(key), strings.Trim(value, `"`))
		}
	}
	return parameters.Get("g") == "apidiscovery.k8s.io" && parameters.Get("v") == "v2" && parameters.Get("as") == "APIGroupDiscoveryList"
}
