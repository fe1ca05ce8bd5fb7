// Package credentials finds the credentials for pulling an image, as kubelets do: in secrets of the types
// kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg, in Docker's configuration files on the node, and from
// credential provider plug-ins (kubelet.config.k8s.io, CredentialProviderConfig).
//
// All matching credentials are returned, those with the most specific entry first. Nothing here writes a secret to a log or
// an error.
package credentials
