// Package batch describes the kinds of the group batch, version v1: the Job, pods that run until a
// number of them has succeeded, and the CronJob, which makes jobs by a schedule.
//
// A job whose selector is not its user's (manualSelector) gets one of its UID
// when it is created, and its pod template the labels for it, so that no two jobs
// count the same pods. A job's work can't change afterwards; where its pods
// may run can, as long as it is suspended and has not begun.
package batch
