// Package certificates has the controllers of CertificateSigningRequests: one approves the requests of nodes for client
// certificates, one issues the certificates of approved requests, and one deletes old requests. Two more delete old
// PodCertificateRequests, and publish the root certificate in a ClusterTrustBundle.
//
// The rules, times and messages are those of kube-controller-manager. Requests to other signers than Kubernetes' own are
// only deleted when they are old. Serving certificates of kubelets, and client certificates of users, have to be approved
// by a user.
//
// What a request may ask for, what its certificate has, and when it is deleted are pure functions.
//
//	certificates-C1  A request is approved only after the API server has confirmed, by a SubjectAccessReview, that its
//	                 author may have it.
//	certificates-C2  The controllers do not have the key of the authority: they sign through [Authority].
//	certificates-C3  Nothing is done at intervals. A request that is not approved is looked at again when roles or their
//	                 bindings change, and each request has a timer for its deletion.
package certificates
