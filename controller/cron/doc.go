// Package cron is the controller that makes the jobs of CronJobs, as that of Kubernetes v1.37 does, with its events.
//
// A slot is a time of the schedule, a full minute or second. [decide] is a pure function of a CronJob, its jobs and the time;
// it returns the status, the events and the slot to make a job for. It is tested with stories. The loop around it carries the
// decision out and is woken 100 ms after the next slot, so that a clock that goes a little slow does not matter.
//
//	cron-C1  There is at most one job for each slot: the name of a job ends with the minute of its slot, and the server
//	         refuses the second one of a name. A job that was made before a crash, and is not in the status, is added then.
//	cron-C2  After slots were missed a job is made for the last one only, and only within startingDeadlineSeconds.
//	cron-C3  A change of the schedule makes no job at once. The next slot of the new schedule does.
//
// A slot that the clock skips when daylight saving time begins does not exist, and one that it passes twice when daylight
// saving time ends exists twice, as package robfig/cron has it.
package cron
