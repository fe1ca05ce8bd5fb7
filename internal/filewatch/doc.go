// Package filewatch reports when files change, without polling.
package filewatch
