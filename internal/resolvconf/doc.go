// Package resolvconf reads which resolvers a host uses (resolv.conf(5)).
//
// Resolvers on the loopback network are left out: they answer for their own host alone, and
// most of them only pass questions on. Where all are, the file is taken in which
// systemd-resolved, or NetworkManager, says whom the stub asks itself.
package resolvconf
