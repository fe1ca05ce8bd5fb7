package await

import "github.com/sampan-io/sampan/await/events"

// replicas is what all controllers of pods that run for ever have in common.
type replicas struct {
	want      int32 // pods that are asked for
	exist     int32 // that are there, of whatever revision
	updated   int32 // that are of the latest revision
	enough    int32 // of the latest revision that suffice: want, where others are not left on purpose
	ready     int32 // that are ready, and have been for as long as asked
	word      string
	seen      bool // the controller has seen the latest change
	ending    bool // the controller itself is being deleted
	paused    bool
	revisions bool              // it replaces pods by those of another revision
	revision  string            // the latest; empty where pods have none
	keep      func(*node) bool  // whose trouble matters; nil means everybody's
	labels    map[string]string // of its pods
	before    tally             // of the controller whose pods it replaces, if that is another one
	tells     bool              // what holds up others is told, but is no failure: they are on their way out
}

// asked takes in what a spec asks for: so many pods (1 is the API's default), and that a
// pod has been ready for a time before it counts, which the number of available ones tells.
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

// judge: scheduled and running mean that as many pods of the latest revision as are
// asked for have got that far, ready that all of them are ready and no others are
// left, old-gone that none is even ending, serving that all are among the
// endpoints of services. That no Service selects the pods is a likely failure of serving: one
// may be about to be created.
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
		r.tells = true
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

// lacking says why there are too few.
func (r replicas) lacking(v *view, missing Verdict) Verdict {
	if why, some := v.refused(); some && v.known && v.allPods().live < r.want {
		why.Cause = missing.Cause + "; " + why.Cause
		return why
	}
	return r.held(v, missing)
}

// held puts what holds up the pods behind what is missing.
func (r replicas) held(v *view, missing Verdict) Verdict {
	if why, some := v.holdup(r.keep); some {
		why.Cause = missing.Cause + "; " + why.Cause
		return why
	}
	if r.keep != nil && r.tells {
		if why, some := v.holdup(nil); some {
			return missing.because(why.Cause)
		}
	}
	return missing.because(v.warning())
}

// latest keeps the pods of the latest revision, and all where that is not known or others
// are left on purpose.
func (r replicas) latest() func(*node) bool {
	if r.revision == "" || r.enough < r.want {
		return nil
	}
	return func(n *node) bool { return n.revision == r.revision }
}

// replicaFailure is the verdict on a condition ReplicaFailure.
func replicaFailure(v *view, r replicas, reasonOf, message string) Verdict {
	certainty := Likely
	if barred(message) {
		certainty = Certain
	}
	return failed(certainty, "%d/%d pods %s; %s", min(r.ready, r.want), r.want, r.word, events.Reason(reasonOf, message))
}
