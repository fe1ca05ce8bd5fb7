// Package cni connects pods to networks by plug-ins of the Container Network Interface (cni.dev), with libcni.
//
// The configuration is the first file of a directory, by name, with the suffix .conflist, .conf or .json, as in containerd. It is
// read at each use, so a network add-on may write it while the runtime runs. What a pod was attached with is kept in a directory of
// this package: a pod is detached with the configuration that attached it, even if that has changed or the runtime was killed.
//
//	C1  Each attempt to attach a pod is followed by a detachment, at the latest after the next start of the runtime.
//	C2  A plug-in that hangs is ended after two minutes, with all that it has started.
//
// The capabilities are portMappings, bandwidth and io.kubernetes.cri.pod-annotations. Plug-ins of version 1.1 and later are asked for
// their status (STATUS) and release at the start of the runtime what they keep for pods that are gone (GC). CHECK is not used, as in
// containerd.
package cni
