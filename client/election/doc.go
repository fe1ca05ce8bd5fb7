// Package election elects a leader among equal programs with a Lease, by the protocol of client-go's leader election, so
// that programs of both kinds can take part in the same election.
//
//	election-E1  The leader renews the Lease every RetryPeriod. It stops working if it could not renew it for
//	             RenewDeadline, which is before another candidate may take it.
//	election-E2  Candidates take the Lease when it has not changed for LeaseDuration by their own clock. The times in the
//	             Lease do not count.
//	election-E3  A leader that stops gives the Lease back after its work has ended, so that another one can begin at once.
package election
