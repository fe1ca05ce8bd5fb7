// Package csi pins the sidecars of CSI drivers that the storage tests of upstream's end-to-end suite run in pods, in the
// versions that the manifests of the suite name. It is a module of its own, because the modules that they need differ from
// ours and from those of the suite. `.ci/conformance` builds them if LABELS is set.
package csi
