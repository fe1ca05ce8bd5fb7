// Package election lets one of several equal programs work at a time, by a Lease: the protocol of client-go's
// leader election, so that both can take part in the same one.
//
//	E1  Who holds the lease renews it every RetryPeriod, and stops working when it has not succeeded for
//	    RenewDeadline, which is before anybody else may take it.
//	E2  Others take it when it has not changed for LeaseDuration by their own clock, whatever times are
//	    written in it.
//	E3  Who stops gives the lease back, after its work has ended, so that another can begin at once.
package election
