// Package filelock locks open files and directories between processes. A lock ends when the file is closed, at the latest
// with the process. The locks are advisory ones of flock(2); several programs of the cluster agree on them.
package filelock

import "errors"

// ErrLocked is the error of a lock that another process holds.
var ErrLocked = errors.New("locked by another process")
