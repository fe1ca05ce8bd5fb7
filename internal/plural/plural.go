// Package plural prints counted nouns for messages.
package plural

import "strconv"

// Count returns a number with its noun: "1 pod", "2 pods", "0 pods". The plural of one must be formed with an s.
func Count[N ~int | ~int32 | ~int64](n N, one string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Noun(n, one)
}

// Noun returns the form of a noun that goes with a number: "pod" for 1, "pods" otherwise.
func Noun[N ~int | ~int32 | ~int64](n N, one string) string { return Choose(n, one, one+"s") }

// Choose returns one for 1, many otherwise: "is" or "are".
func Choose[N ~int | ~int32 | ~int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
