// Package flowcontrol describes the kinds of the group flowcontrol.apiserver.k8s.io, version v1:
// FlowSchema, which sorts requests, and PriorityLevelConfiguration, which says how many of a sort
// are served at once.
//
// Two objects of each kind are the same in every cluster: [MandatorySchemas] and [MandatoryLevels]. A cluster starts
// with a few more: [SuggestedSchemas] and [SuggestedLevels].
package flowcontrol
