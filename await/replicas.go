package await

import "github.com/sampan-io/sampan/await/events"

// replicas are the numbers that all controllers of long-running pods have in their spec and status.
type replicas struct {
	want      int32             // wanted pods
	exist     int32             // existing pods, of any revision
	updated   int32             // existing pods of the latest revision
	enough    int32             // wanted pods of the latest revision: want, unless old ones are kept on purpose
	ready     int32             // pods that are ready, for minReadySeconds if that is set
	word      string            // "ready" or "available": the state counted by the field ready
	seen      bool              // the controller has observed the latest generation
	ending    bool              // the controller itself is being deleted
	paused    bool              // the rollout is paused
	revisions bool              // the controller replaces pods by those of another revision
	revision  string            // the latest revision; empty if pods have none
	keep      func(*node) bool  // selects the parts that may hold it up; nil selects all
	labels    map[string]string // of its pods
	before    tally             // of the controller whose pods it replaces, if any
	mentions  bool              // problems of parts outside keep are in the cause, but are no failure of this object
}

// asked sets the wanted number of pods (1 is the API's default) and, with minReadySeconds, the number of available pods
// in place of ready ones.
func (r *replicas) asked(want *int32, minReadySeconds, available int32) {
	r.want = 1
	if want != nil {
		r.want = *want
	}
	if minReadySeconds > 0 {
		r.ready, r.word = available, "available"
	}
}

const unseen = "its controller has not seen the latest change yet"

// judge judges a controller of pods. Scheduled and running mean that the wanted number of pods of the latest revision
// have got that far; ready, that all of them are ready and no others are left; old-gone, that no old pod is even
// terminating; serving, that all pods are in the endpoints of Services. If no Service selects the pods, serving is a
// likely failure, because a Service may be created later.
func (r replicas) judge(d Degree, kind string, v *view) (Verdict, error) {
	verdict, err := r.reached(d, kind, v)
	if d != Serving || err != nil || verdict.State == Done || r.ending || !r.seen || !v.known || v.pods(r.revision).serving > 0 {
		return verdict, err
	}
	why := v.unselected(r.labels)
	if why != "" && verdict.State == Waiting {
		verdict.State, verdict.Certainty = Failed, Likely
	}
	return verdict.because(why), nil
}

func (r replicas) reached(d Degree, kind string, v *view) (Verdict, error) {
	switch {
	case d.isOneOf(Finished, Complete):
		return misuse(d, kind, Ready, Running, Settled(1), OldGone, Serving)
	case r.ending:
		return waiting("it is being deleted"), nil
	case !r.seen:
		return waiting(unseen).because(v.warning()), nil
	case d == Observed:
		return done(), nil
	case d.needsParts() && !v.known:
		return waiting("its pods are not known yet"), nil
	}
	pods, all := v.pods(r.revision), v.allPods()
	if d == OldGone {
		r.mentions = true
	}
	switch d {
	case Scheduled:
		return r.reach(d, pods.scheduled, "on a node", v), nil
	case Running:
		return r.reach(d, pods.running, "running", v), nil
	}
	switch {
	case r.paused && r.updated < r.enough:
		return waiting("it is paused; %d/%d pods are of the latest revision", r.updated, r.enough), nil
	case r.updated < r.enough && r.exist > r.updated:
		return r.lacking(v, waiting("%d/%d pods are of the latest revision", r.updated, r.enough)), nil
	case r.exist > r.want && r.revisions && r.exist > r.updated:
		return r.held(v, waiting("%s of an older revision left", counted(int(r.exist-r.updated), "pod"))), nil
	case r.exist > r.want:
		return r.held(v, waiting("%s too many", counted(int(r.exist-r.want), "pod"))), nil
	case r.ready < r.want || r.updated < r.enough:
		return r.reach(d, min(r.ready, r.want), r.word, v), nil
	}
	if old := all.live + all.ending - pods.live + r.before.live + r.before.ending; d == OldGone && old > 0 {
		missing := waiting("%s still there", counted(int(old), "old pod"))
		if all.ending == 0 && v.node.before != nil {
			v = v.of(v.node.before)
		}
		return v.held(missing, nil), nil
	}
	if d == Serving {
		return r.reach(d, pods.serving, "serving", v), nil
	}
	return done(), nil
}

func (r replicas) reach(d Degree, have int32, word string, v *view) Verdict {
	if have >= r.want && !(d == Ready && r.updated < r.enough) {
		return done()
	}
	return r.lacking(v, waiting("%d/%d pods %s", have, r.want, word))
}

// lacking adds to missing why there are too few pods.
func (r replicas) lacking(v *view, missing Verdict) Verdict {
	if why, some := v.refused(); some && v.known && v.allPods().live < r.want {
		why.Cause = missing.Cause + "; " + why.Cause
		return why
	}
	return r.held(v, missing)
}

// held adds to missing why the pods are held up.
func (r replicas) held(v *view, missing Verdict) Verdict {
	if why, some := v.holdup(r.keep); some {
		why.Cause = missing.Cause + "; " + why.Cause
		return why
	}
	if r.keep != nil && r.mentions {
		if why, some := v.holdup(nil); some {
			return missing.because(why.Cause)
		}
	}
	return missing.because(v.warning())
}

// latest returns a function that selects the pods of the latest revision. It returns nil, for all pods, if the revision
// is not known or pods of older revisions are kept on purpose.
func (r replicas) latest() func(*node) bool {
	if r.revision == "" || r.enough < r.want {
		return nil
	}
	return func(n *node) bool { return n.revision == r.revision }
}

// replicaFailure returns the verdict on a condition ReplicaFailure.
func replicaFailure(v *view, r replicas, reasonOf, message string) Verdict {
	certainty := Likely
	if barred(message) {
		certainty = Certain
	}
	return failed(certainty, "%d/%d pods %s; %s", min(r.ready, r.want), r.want, r.word, events.Reason(reasonOf, message))
}
