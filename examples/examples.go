package examples

import _ "embed"

// Web is web.yaml: a ReplicationController of three pods and a Service.
//
//go:embed web.yaml
var Web []byte

// BuildJob is build-job.yaml: a Job that prints its progress and ends.
//
//go:embed build-job.yaml
var BuildJob []byte
