// Package standalone runs a scheduler as a program of its own, against any Kubernetes API server: `sampan scheduler`, and
// schedulers with plug-ins of other people's, which need ten lines (see examples/scheduler).
package standalone
