package follow

import (
	"time"

	"github.com/sampan-io/sampan/client"
)

// A Step is one of [Page], [*Changed], [Deleted], [Bookmark], [Expired] and [Failed]. Its objects are shared and must not be
// changed (C1 of package client).
type Step interface{ isStep() }

// A Page is a part of a list.
type Page struct {
	Objects       []client.Object
	Begins, Whole bool   // this page is the first of a list; it is the last
	Revision      string // of the list; set in its last page
}

// A Changed is an object that was added or modified. Its resource version is the revision of the change. The next step
// overwrites it, so that the most frequent step allocates nothing; its object stays.
type Changed struct {
	Object client.Object
	Added  bool // it did not exist before, or the source did not select it
}

// A Deleted is an object that was deleted, or that the source no longer selects. Its resource version is the revision of
// the change. While a list is streamed, an object of an earlier page may be deleted.
type Deleted struct{ Object client.Object }

// A Bookmark reports that the changes up to a revision are complete.
type Bookmark struct{ Revision string }

// An Expired reports that the server cannot continue the watch from the last revision: it has forgotten it, it has an
// older state than before, or it does not serve the resource any more. A new list follows.
type Expired struct{ Err error }

// A Failed is an error of a request.
type Failed struct {
	Err      error
	Final    bool          // [Retry] gave up; this is the last step
	Failures int           // in a row, with this one
	Pause    time.Duration // before the next try
}

func (Page) isStep()     {}
func (*Changed) isStep() {}
func (Deleted) isStep()  {}
func (Bookmark) isStep() {}
func (Expired) isStep()  {}
func (Failed) isStep()   {}
