package upstream

import (
	"slices"
	"strings"
)

// An excuse is a difference on purpose, or one of the set-up.
type excuse struct {
	why string
	is  func(kind, way string, theirs, ours *answer, difference string) bool
}

var excuses = []excuse{
	{"upstream panics", func(_, _ string, theirs, ours *answer, _ string) bool { return theirs.code == 0 && ours.code >= 400 }},
	{"a fault of the client has not the code 500", func(_, _ string, theirs, ours *answer, _ string) bool {
		return theirs.code == 500 && ours.code >= 400 && ours.code < 500
	}},
	{"a patch whose result cannot be decoded is refused with 400 or 422 and the fault", func(_, way string, theirs, ours *answer, _ string) bool {
		refused := []int{400, 422}
		return strings.Contains(way, "patch") && slices.Contains(refused, theirs.code) && slices.Contains(refused, ours.code)
	}},
	{"a number beyond its type is refused, and upstream takes another one", func(_, way string, _, ours *answer, _ string) bool {
		return strings.Contains(way, "apply") && strings.Contains(ours.message(), "json: cannot unmarshal number") ||
			strings.Contains(way, "patch") && ours.code == 422 && strings.Contains(ours.message(), "cannot unmarshal number")
	}},
	{"what a user may do, and why a token is wrong, is said in other words", func(kind, _ string, _, _ *answer, _ string) bool {
		return kind == "SelfSubjectRulesReview" || kind == "SelfSubjectReview" || kind == "TokenReview"
	}},
	{"no packet can go to such a port", func(kind, _ string, _, ours *answer, _ string) bool {
		return kind == "EndpointSlice" && strings.Contains(ours.message(), ": must be between 1 and 65535, inclusive")
	}},
	{"upstream does not allocate ports in a dry run", func(kind, _ string, _, ours *answer, _ string) bool {
		return kind == "Service" && strings.Contains(ours.message(), "odePort: Invalid value") && strings.Contains(ours.message(), "not in the valid range")
	}},
	{"definitions have their finalizer from the creation on", func(kind, _ string, _, _ *answer, d string) bool {
		return kind == "CustomResourceDefinition" && strings.HasPrefix(d, ".metadata.finalizers:")
	}},
	{"the API server, and not a controller, checks the types of policies", func(kind, _ string, _, _ *answer, d string) bool {
		return kind == "ValidatingAdmissionPolicy" && strings.HasPrefix(d, ".status.")
	}},
	{"an empty list of what is known about a user is left out", func(kind, _ string, _, _ *answer, d string) bool {
		return strings.HasSuffix(kind, "AccessReview") && strings.HasPrefix(d, ".spec.extra.") && strings.HasSuffix(d, ": [] | null")
	}},
	{"a node that is created ready has no taint", func(kind, _ string, _, ours *answer, d string) bool {
		return kind == "Node" && strings.HasPrefix(d, ".spec.taints:") && strings.Contains(encode(field(ours.body, "status", "conditions")), `"Ready"`)
	}},
	{"an address that cannot be parsed is refused", func(_, _ string, _, ours *answer, _ string) bool {
		return ours.code == 422 && strings.Contains(ours.message(), "hostIP: Invalid value") && strings.Contains(ours.message(), "must be a valid IP address")
	}},
	{"a name that cannot be is refused in a status, too", func(_, way string, _, ours *answer, _ string) bool {
		return way == "status" && strings.Contains(ours.message(), "metadata.generateName: Invalid value")
	}},
	{"an empty list is the same as none", func(_, _ string, _, _ *answer, d string) bool {
		return d == ".metadata.generation: 2 | 1" || strings.HasSuffix(d, ": [] | null") || strings.HasSuffix(d, "dependencies is not supported | accepted") || strings.Contains(d, "spec.metadata.ownerReferences: Forbidden: cannot be set | accepted")
	}},
}

func excused(kind, way string, theirs, ours *answer, difference string) bool {
	for _, e := range excuses {
		if e.is(kind, way, theirs, ours, difference) {
			return true
		}
	}
	return false
}
