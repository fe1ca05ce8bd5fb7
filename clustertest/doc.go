// Package clustertest gives Go tests a real cluster of their own.
package clustertest
