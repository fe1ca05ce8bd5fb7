// Package pki is the certificate authorities of one cluster, and the keys of its tokens.
//
// Few keys are kept on disk: that of the authority, that of the authority of front proxies, and the one that signs service
// account tokens. All other keys and certificates are issued in memory, by the component that
// needs them, at each start and again before they expire, so that nothing must be
// renewed by hand or by a restart. The kept keys are replaced long before they expire, with a time in which the old and
// the new one are accepted; see rotate.go.
//
// Keys are ECDSA P-256. Files are written atomically and are only readable by
// their owner.
package pki
