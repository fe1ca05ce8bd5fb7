// Package certificates has the controllers of CertificateSigningRequests: one approves the requests of nodes for client
// certificates, one those for serving certificates, one issues the certificates of approved requests, and one deletes old requests. Two more delete old
// PodCertificateRequests, and publish the root certificate in a ClusterTrustBundle.
//
// The rules, times and messages are those of kube-controller-manager. Requests to other signers than Kubernetes' own are
// only deleted when they are old. Client certificates of users have to be approved by a user. Upstream leaves serving
// certificates of kubelets to users, too; here they are approved if everything in them is the node's own.
//
// The rules for requests, the contents of certificates, and the times of deletion are pure functions.
//
//	certificates-C1  A request is approved only after the API server has confirmed, by a SubjectAccessReview, that its
//	                 author may have it.
//	certificates-C2  The controllers do not have the key of the authority: they sign through [Authority].
//	certificates-C3  Nothing is done at intervals. A request that is not approved is looked at again when roles or their
//	                 bindings change, one for a serving certificate when the addresses of a node change, and each request
//	                 has a timer for its deletion.
//	certificates-C4  A node gets a serving certificate only for its name and the addresses in its status, and for none that
//	                 may be that of a server, of a Service, or that of another node.
//	certificates-C5  No client certificate is approved for the name of a Node that exists, unless that node asks itself, nor for
//	                 a name that another request was approved for a moment ago: the holder of a bootstrap token could act
//	                 as the other node.
package certificates
