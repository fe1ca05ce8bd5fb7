package priority

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Dump writes one of the tables that upstream has for debugging: "dump_priority_levels", "dump_queues" or
// "dump_requests". It reports whether there is such a table. Only queues in which requests wait are shown, and only
// requests that wait; virtual times, which this package has not, are left empty.
func (d *Dispatcher) Dump(to io.Writer, table string) bool {
	t := &tableWriter{tabwriter.NewWriter(to, 8, 0, 1, ' ', 0)}
	levels := d.config.Load().levels
	switch table {
	case "dump_priority_levels":
		t.row("PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
			"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests")
		for _, l := range levels {
			d.dumpLevel(t, l)
		}
	case "dump_queues":
		t.row("PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
			"InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
		for _, l := range levels {
			l.dumpQueues(t)
		}
	case "dump_requests":
		t.row("PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime",
			"InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime")
		for _, l := range levels {
			l.dumpRequests(t)
		}
	default:
		return false
	}
	_ = t.to.Flush() // a client that has gone needs no table
	return true
}

type tableWriter struct{ to *tabwriter.Writer }

// row writes a row as upstream does: columns end with a comma.
func (t *tableWriter) row(columns ...string) { _, _ = fmt.Fprintln(t.to, strings.Join(columns, ",\t")) }

func (d *Dispatcher) dumpLevel(t *tableWriter, l *level) {
	var dispatched, executing int64
	var rejected [reasons]int64
	for _, s := range d.config.Load().schemas {
		if s.level != l {
			continue
		}
		running, _ := s.stats.running.get()
		dispatched += s.stats.dispatched()
		executing += running
		for i := range rejected {
			rejected[i] += s.stats.rejected[i].Load()
		}
	}
	l.mu.Lock()
	active, waiting := len(l.active), l.waiting
	l.mu.Unlock()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	t.row(l.name, strconv.Itoa(active), strconv.FormatBool(executing == 0 && waiting == 0), "false", strconv.Itoa(waiting), number(executing),
		number(dispatched), number(rejected[queueFull]+rejected[overLimit]), number(rejected[timedOut]), number(rejected[cancelled]))
}

func (l *level) dumpQueues(t *tableWriter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.active {
		wanted := 0
		for w := q.head; w != nil; w = w.next {
			wanted += w.seats
		}
		t.row(l.name, strconv.Itoa(l.indexOf(q)), strconv.Itoa(q.length), "", strconv.Itoa(q.seats), "",
			strconv.Itoa(wanted), strconv.Itoa(wanted), fmt.Sprintf("%.8fss", time.Duration(q.served).Seconds()))
	}
}

// indexOf returns the number of a queue, or -1 if the level is configured to have fewer. The caller holds mu.
func (l *level) indexOf(q *queue) int {
	for p, page := range l.pages {
		for i := range page {
			if &page[i] == q {
				return p*pageSize + i
			}
		}
	}
	return -1
}

func (l *level) dumpRequests(t *tableWriter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.active {
		i := 0
		for w := q.head; w != nil; w = w.next {
			t.row(l.name, w.schema.name, strconv.Itoa(l.indexOf(q)), strconv.Itoa(i), strconv.FormatUint(w.flow, 16),
				w.since.UTC().Format(time.RFC3339Nano), strconv.Itoa(w.seats), "0", "0s", time.Time{}.Format(time.RFC3339Nano))
			i++
		}
	}
}
