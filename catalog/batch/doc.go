// Package batch describes the Job, kind of the group batch, version v1: pods
// that are to run until a number of them has ended well.
package batch
