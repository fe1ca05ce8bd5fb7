// Package critest pins the version of critest, the conformance tests of CRI by the Kubernetes project (cri-tools). It is a
// module of its own, so that the tests keep the versions of libraries that they were released with. `make critest` builds
// and runs them: see .ci/critest.
package critest

import _ "sigs.k8s.io/cri-tools/pkg/validate" // keeps the module in go.mod
