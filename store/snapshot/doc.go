// Package snapshot reads and writes snapshots: files, or streams, with all records of a store at one revision.
//
// A [Writer] and a [Reader] work in one pass and hold one frame in memory, so a snapshot of any size can be sent over
// a network. The package owns the format and decides whether a snapshot is complete and undamaged. It does not
// interpret values, encrypt, open files or know the other data of a cluster: [Info] carries them for others.
//
// A snapshot is
//
//	magic, format version     "SAMPANSN", 4 bytes
//	length, Info, checksum    4 bytes, JSON, CRC32C
//	frames                    length, CRC32C, payload
//	the last frame            Summary with counts and the SHA-256 of everything before it
//
// with little-endian numbers. The first byte of a payload is the kind of the frame: records, a file, or the summary.
// The checksum of a frame covers its number in the snapshot as well, so frames that were moved, repeated or left out
// are noticed where that happened. Keys rise strictly. A length is never trusted: memory is taken as the bytes
// arrive.
//
// Values are saved in the form that the store's disk has. Info.Secrets says whether the ones that the cluster
// encrypts are encrypted.
package snapshot
