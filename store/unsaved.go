package store

import "slices"

// unsaved keeps the newest volatile write of each key until a commit takes it along. It is
// guarded by the mu of its writes.
type unsaved struct {
	list  []Entry        // by revision; superseded ones have an empty key
	place map[string]int // where a key stands in list
	bytes int            // the sizes of the entries that are not superseded
}

// fits reports whether the bounds allow adding these writes. Renewals and deletions have as
// much space again to themselves, so that a flood of Events does not stop them.
func (u *unsaved) fits(frees bool, more ...queued) bool {
	count, bytes := len(u.place), u.bytes
	for i := range more {
		e := more[i].entry()
		if at, ok := u.place[e.Key]; ok {
			bytes -= u.list[at].Size()
		} else {
			count++
		}
		bytes += e.Size()
	}
	if frees {
		return count <= 2*maxUnsaved && bytes <= 2*maxUnsavedBytes
	}
	return count <= maxUnsaved && bytes <= maxUnsavedBytes
}

func (u *unsaved) add(q queued) {
	e := q.entry()
	if before, ok := u.replaces(e.Key); ok {
		e.Replaces = before
		u.remove(e.Key)
	}
	if len(u.list) > 2*len(u.place)+64 {
		u.list = slices.DeleteFunc(u.list, func(e Entry) bool { return e.Key == "" })
		for i, e := range u.list {
			u.place[e.Key] = i
		}
	}
	u.place[e.Key] = len(u.list)
	u.list = append(u.list, e)
	u.bytes += e.Size()
}

// replaces returns the size of the saved record that the unsaved write of a key replaces; ok
// is false if there is no such write.
func (u *unsaved) replaces(key string) (size int, ok bool) {
	at, ok := u.place[key]
	if !ok {
		return 0, false
	}
	return u.list[at].Replaces, true
}

func (u *unsaved) remove(key string) {
	if at, ok := u.place[key]; ok {
		u.bytes -= u.list[at].Size()
		u.list[at] = Entry{}
		delete(u.place, key)
	}
}

// entries returns a new list of the unsaved entries, with space for more.
func (u *unsaved) entries(more int) []Entry {
	out := make([]Entry, 0, len(u.place)+more)
	for _, e := range u.list {
		if e.Key != "" {
			out = append(out, e)
		}
	}
	return out
}

func (u *unsaved) clear() {
	clear(u.list)
	u.list = u.list[:0]
	clear(u.place)
	u.bytes = 0
}
