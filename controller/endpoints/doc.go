// Package endpoints is the controller that keeps the Endpoints and EndpointSlices of Services up to date.
//
// For a Service with a selector it writes both from the pods that the selector matches. For a Service without one it
// copies the Endpoints that a user wrote into EndpointSlices, which are what proxies read. It also gives endpoints the
// topology hints that a Service asks for, and writes an event about a selector that matches no pod.
//
// The plan is a pure function of the Service, its pods and the existing slices; the reconcile function carries it
// out.
//
//	endpoints-E1  A change of a pod reconciles only the Services that select it, and updates one slice of each, unless
//	              topology hints move.
//	endpoints-E2  A reconcile with nothing to change writes nothing.
package endpoints
