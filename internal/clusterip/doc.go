// Package clusterip relates cluster IPs of Services to the IPAddress objects that show them.
package clusterip
