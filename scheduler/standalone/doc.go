// Package standalone runs a scheduler as a separate program against any Kubernetes API server: `sampan scheduler`, and
// schedulers with additional plug-ins, which take ten lines (see examples/scheduler).
package standalone
