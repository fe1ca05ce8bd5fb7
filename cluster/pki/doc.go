// Package pki is the certificate authority of one cluster.
//
// Two keys are kept on disk: the CA's key and the key that signs service account
// tokens. All other keys and certificates are issued in memory, by the component that
// needs them, at each start and again before they expire, so that nothing must be
// renewed by hand or by a restart.
//
// Keys are ECDSA P-256. Files are written atomically and are only readable by
// their owner.
package pki
