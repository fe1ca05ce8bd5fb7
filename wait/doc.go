// Package wait repeats a condition until it holds.
package wait
