// Package certificates describes the kinds of the group certificates.k8s.io, version v1.
//
// A CertificateSigningRequest is approved or denied, and then answered by the signer that it names. What is
// requested never changes. The subresource approval takes the decision, and the status the certificate. The
// API server sets the user who asks when it admits the request.
//
// A PodCertificateRequest asks for a certificate of a pod; its status takes the outcome, once. A
// ClusterTrustBundle holds the certificates of authorities that pods can trust. Package controller/certificates has the
// signers of the former.
package certificates
