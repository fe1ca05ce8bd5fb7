// Package monitoring serves the metrics and the health of a component that runs as a program of its own.
package monitoring
