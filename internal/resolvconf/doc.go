// Package resolvconf reads which resolvers a host uses (resolv.conf(5)).
//
// Resolvers on the loopback network are left out: they answer for their own host alone, and
// most of them only pass questions on. Where all are, the file is taken in which
// systemd-resolved says whom it asks itself.
package resolvconf
