// Package roles holds the controller of ClusterRoles with an aggregation rule, such as admin, edit and
// view: their rules are those of all ClusterRoles that their selectors select.
package roles
