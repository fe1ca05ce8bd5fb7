// Package encryption encrypts the values of a store's records before they are written to disk, as a file of the kind
// EncryptionConfiguration (apiserver.config.k8s.io/v1) says. Without such a file it encrypts Secrets with keys of its own,
// which it keeps in a file of the same kind.
//
// A store calls [Encryption.Seal] with the bytes it writes, and [Encryption.Open] with those it has read, so
// values in memory are plain and reads cost nothing. The backend calls [Encryption.Reseal] when it copies records, so a
// snapshot has no record that is encrypted with an old key, or not at all.
//
// The configuration means what it means upstream: the first provider of a resource's list encrypts, all decrypt, and a
// record that is not encrypted is readable if the list contains identity. The bytes on disk are not upstream's:
//
//	k8s:enc:PROVIDER:s1:NAME:FINGERPRINT:BODY
//
// NAME is the name of the key, and FINGERPRINT, of its secret, distinguishes a lost or wrong key from a damaged record. Of
// KMS providers NAME is that of the provider, and there is no fingerprint. Everything before the ciphertext, and the key of
// the record, is authenticated with it: a record that was copied to another key, or changed, is refused.
//
// AES-GCM is never used with the configured secret itself. Each process derives a key from the secret and a random salt,
// and counts nonces, so the number of writes with one secret is not limited. KMS providers encrypt such a secret, the seed,
// and are called once for each seed, not for each record.
package encryption
