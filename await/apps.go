package await

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/client"
)

const appsGroup = "apps"

func groupOf(obj client.Object) string { return client.KindOf(obj).Group }

// judgeApp judges the controllers of the group apps by the numbers in their
// status, which they all have in the same form: ready means that all pods that are
// asked for are of the latest kind and ready, and no others are left. Their
// conditions alone would not do: a Deployment is Available while it is still
// replacing pods.
func judgeApp(d Degree, obj client.Object) (Verdict, error) {
	if d != Ready {
		return Verdict{}, &MisuseError{d, kindOf(obj), "wait for ready or deleted"}
	}
	object, err := fields(obj)
	if err != nil {
		return Verdict{}, err
	}
	if obj.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	observed, found := observedGeneration(object)
	if found && observed < obj.GetGeneration() || !found && obj.GetGeneration() > 0 {
		return waiting("its controller has not seen the latest change yet"), nil
	}
	for _, c := range conditions(object) {
		switch {
		case c.kind == "Progressing" && c.status == "False":
			return failed(Certain, "%s", reason(c.reason, c.message)), nil
		case c.kind == "ReplicaFailure" && c.status == "True":
			return failed(Likely, "%s", reason(c.reason, c.message)), nil
		}
	}
	number := func(otherwise int64, path ...string) int64 {
		n, found, err := unstructured.NestedInt64(object, path...)
		if !found || err != nil {
			return otherwise
		}
		return n
	}
	want := number(1, "spec", "replicas") // the API's default
	all, ready := number(0, "status", "replicas"), number(0, "status", "readyReplicas")
	updated := number(0, "status", "updatedReplicas")
	switch kindOf(obj) {
	case "DaemonSet":
		want = number(0, "status", "desiredNumberScheduled")
		all, ready = number(0, "status", "currentNumberScheduled"), number(0, "status", "numberReady")
		updated = number(0, "status", "updatedNumberScheduled")
	case "ReplicaSet": // it does not replace pods
		updated = want
	}
	switch {
	case updated < want:
		return waiting("%d/%d pods are of the latest kind", updated, want), nil
	case all > want:
		return waiting("%d pods too many", all-want), nil
	case ready < want:
		return waiting("%d/%d pods ready", ready, want), nil
	}
	return done(), nil
}
