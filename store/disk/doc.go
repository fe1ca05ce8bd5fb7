// Package disk keeps the history of a store in a directory: a log of batches, folded from time to
// time into a snapshot.
//
// A commit appends one frame to the newest segment of the log and syncs it once. The space ahead
// was written with zeros before, so that the sync has no metadata to carry. Nothing is indexed: the
// store above holds every record in memory, so the directory is read once, at the start.
//
// The files are
//
//	lock               held with flock while a process works on the directory
//	00000012.snapshot  the live records after segment 12
//	00000013.log       a segment: everything since; the highest is written to
//	reserve, spare     space kept back for a full disk, see space.go
//	closed             where the log ended at the last clean stop, see mark.go
//	history            superseded snapshots and segments, if Options.History keeps them, see archive.go
//
// and each snapshot and segment is a header (magic, format version, kind, number, first sequence,
// salt, checksum) followed by frames (length, CRC32C, sequence, payload). The sequence rises by one
// from frame to frame across segments, so a missing segment or frame is noticed, and a batch is one
// frame, so it is there wholly or not at all.
//
// A frame that does not check out at the end of the newest segment, with no intact frame behind it,
// is the rest of a batch that was never acknowledged before a crash: it is cut off (I7). Anywhere else it
// is damage: a [*CorruptError] with the place. A clean stop writes a closing frame, and the place behind it into the
// file "closed": a log that ends before that place is damaged, whatever its end looks like.
//
// When the log is longer than the snapshot below it (and than Options.Segment), a new segment is
// begun, and a goroutine folds the older files into a new snapshot, which replaces them by a
// rename. Commits go on meanwhile. A crash in between leaves both, and the older ones are ignored.
// A fold that did not end, because of a crash, a stop or an error, begins again at the next start.
//
// A sync that failed is never repeated in the same process: the store stops. The next process
// cannot know whether the last frame is on the medium or only in the page cache, so it writes and
// syncs that frame again before it is read.
package disk
