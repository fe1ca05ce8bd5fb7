// Package oomscore keeps the kernel from choosing this process when memory runs out (oom_score_adj, proc(5)), and the
// programs that it starts from inheriting that.
//
// The score belongs to the process and a child begins with it, so [Protect] sets it once, and every program is started
// through [Spawn], [Run] or [CombinedOutput], which take the protection away for the time of the fork. Containers have
// scores of their own, which the container runtime sets.
package oomscore
