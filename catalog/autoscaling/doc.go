// Package autoscaling describes the HorizontalPodAutoscaler, kind of the group autoscaling, which is
// stored in version v2 and served in v1 as well.
//
// In v1 there is only a target for the use of CPU; what else an object has is kept in annotations
// there, under upstream's names. The Scale of the group is a subresource of other kinds.
package autoscaling
