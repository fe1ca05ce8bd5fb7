// Package servicecidrs holds the controllers of the networks of cluster IPs: one keeps ServiceCIDRs that are in use from being
// deleted, and reports that they are ready; the other keeps the IPAddress objects of Services.
//
// A Service holds its cluster IPs by itself: the API server gives no address of a stored Service to another one. The
// IPAddress of a cluster IP shows that, and the API server writes it right after the Service. So a crash between the two
// leaks nothing; this package writes missing ones, and deletes those of a deleted Service.
package servicecidrs
