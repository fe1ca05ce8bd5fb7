// Package compat has waits with the names of Kubernetes' e2e framework, so that a test suite changes its imports alone.
//
// [WaitForJobPodsRunning], [WaitForJobPodsInPhase], [WaitForJobFinish], [WaitForJobComplete], [WaitForPodsOnNodes] and
// [ControllerHasDesiredReplicas] judge with package await and read with package client/follow. New code should use
// [await.Until], which shows progress and takes any kind and degree.
//
// The package writes nothing to the server and prints nothing.
package compat
