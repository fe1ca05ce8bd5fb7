// Package pki is the certificate authority of one cluster.
//
// Two keys are kept on disk: that of the authority and that with which
// service-account tokens are signed. Everything else is issued anew, in memory,
// by whoever needs it, each time the program starts and again when it is about
// to expire, so that nothing has to be renewed by hand or by a restart.
//
// Keys are ECDSA P-256. Files are written whole or not at all and readable by
// their owner alone.
package pki
