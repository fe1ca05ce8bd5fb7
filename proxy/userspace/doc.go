// Package userspace forwards Services in the program itself: a socket per
// service port, a balancer that goes round the backends, and copying of bytes in
// both directions.
//
// It retries. A backend that refuses is passed over at once and one that does not
// answer after a timeout that grows with each try; when all have failed it goes
// round again, with the backends as they are by then. The client notices nothing
// but the time. Once bytes have flowed there is no second try.
//
// Both directions of a TCP connection end on their own (half-close), and when both
// have ended, or either is broken, both sockets are closed. UDP flows end when
// they have been silent for a while or when their backend is gone.
package userspace
