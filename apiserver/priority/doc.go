// Package priority decides which requests are executed now, which wait and which are refused: API Priority and
// Fairness (KEP-1040), by the stored FlowSchemas and PriorityLevelConfigurations.
//
// A [Dispatcher] follows a [Config]. The first schema, by precedence, that matches a request gives it a priority level
// and a flow in it: that of its user or of its namespace. Each level has seats, of which a request takes one, and a
// large list several. A request that finds none waits in a queue of its level, or is refused if the level has no
// queues.
//
//	shuffle sharding  a flow uses a few of the queues of its level, its hand, and each request goes to the
//	                  shortest of them; so a flow that fills its queues leaves others to each other flow
//	fair queuing      a free seat goes to the queue that has the fewest; of equal ones to the one that has had
//	                  the fewest seat-seconds
//	borrowing         a level that needs more than its nominal seats gets seats that other levels may lend and
//	                  don't need
//
// The level exempt, of administrators (the group system:masters), has no limits, whatever objects are stored.
package priority
