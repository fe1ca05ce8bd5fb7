// Package aggregation makes the groups of other API servers part of this one, as upstream's aggregator does: an APIService
// names a version of a group and the Service behind which its server is.
//
// An [Aggregator] keeps an APIService for each version that this server serves itself, checks whether the other servers are
// available, reads their discovery documents, and passes requests on to them. The request is authorized here first; the other
// server learns the user from headers, and knows by the client certificate that it may believe them.
//
// Other servers' faults cost only their requests. Each has a bound on its requests, answers to the Aggregator's own
// questions have a time limit and a largest size, and documents are served as they were read last.
package aggregation
