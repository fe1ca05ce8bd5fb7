// Package changes compares two states of an object field by field, and has the lines in which the API server sends the
// changes of a cluster. It decides how a change is shown: which fields do not count, how elements of lists are named,
// the masks in Secrets, and how much of a large change is left out.
package changes
