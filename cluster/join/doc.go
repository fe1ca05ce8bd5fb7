// Package join makes this machine a node of a cluster that runs elsewhere, as kubeadm's join does: it finds the cluster by a
// bootstrap token and the hash of its certificate authority, and gets certificates by CertificateSigningRequests. It also keeps
// these certificates valid.
//
//	join-J1  Nothing is sent to a server before its authority is known to be the cluster's: the ConfigMap kube-public/cluster-info,
//	         which has the authority, is read anonymously over a connection that is not verified, must be signed with the
//	         token, and its authority must have one of the given hashes. It is read again over a verified connection.
//	join-J2  Private keys are made here and never leave this machine.
//	join-J3  A certificate is replaced by a new one with a new key when a fifth of its time is left, and when another
//	         certificate of the authority signs. Connections with the
//	         former client certificate are closed then.
package join
