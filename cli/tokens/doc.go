// Package tokens has the verb token: the bootstrap tokens with which machines join a cluster.
package tokens
