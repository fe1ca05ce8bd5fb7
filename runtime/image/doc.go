// Package image stores container images and creates root file systems from them.
//
// A [Store] reads archives (docker-archive or OCI image layout) from a stream, verifies every digest, and unpacks each
// chain of layers once. A container's root file system is an overlay mount of those layers, or a copy of them if the
// data directory's file system does not support overlays.
//
//	M1  Content that is stored under a digest has that digest.
//	M2  An import stores all of its images or none, and a failed import or pull leaves nothing on the disk.
//	M3  Nothing in an archive is written outside the directory that it is unpacked to: names with ".." are refused,
//	    and links are followed within it.
//	M4  A layer is kept as long as an image or a container needs it.
//	M5  After a crash the store holds its images from before, and perhaps the image whose import had just returned.
//
// Terms: the id of an image is the digest of its configuration. A diff id is the digest of a layer's uncompressed tar
// file. A chain id names a layer together with all layers below it. A blob is a file stored under its digest,
// unmodified.
//
// Images come from archives ([Store.Import]) and from registries ([Store.Pull]). Package registry speaks with the latter.
package image
