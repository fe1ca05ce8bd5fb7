// Package bootstraptokens holds the controllers of bootstrap tokens: one deletes tokens when they expire, the other signs
// the ConfigMap kube-public/cluster-info with each token, so that a new node that has a token can trust their contents.
package bootstraptokens
