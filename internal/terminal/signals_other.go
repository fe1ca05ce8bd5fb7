//go:build !unix

package terminal

import "os"

// NotifyResized does nothing: there is no such signal.
func NotifyResized(chan<- os.Signal) {}

// NotifyContinued does nothing: there is no such signal.
func NotifyContinued(chan<- os.Signal) {}

// NotifyStopped does nothing: there is no such signal.
func NotifyStopped(chan<- os.Signal) {}

// Stop does nothing.
func Stop() {}

// Foreground reports true.
func Foreground(*os.File) bool { return true }
