// Package zpages serves the pages about a running component that KEP-4827 and KEP-4828 describe: /statusz and /flagz, as text
// for people, and as objects of the group config.k8s.io for programs.
package zpages
