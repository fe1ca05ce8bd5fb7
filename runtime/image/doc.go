// Package image keeps container images and makes root file systems of them.
//
// A [Store] reads archives (docker-archive or OCI image layout) from a stream,
// verifies every digest, and unpacks each chain of layers once. A container's root
// file system is an overlay mount over those layers, or a copy of them where the
// data directory's file system can't carry an overlay.
//
//	M1  What is stored under a digest has that digest.
//	M2  An import stores all of its images or none, and an import that fails
//	    leaves nothing on the disk.
//	M3  Nothing in an archive is written outside the directory that it is unpacked
//	    to: names with ".." are refused, and links are followed within it.
//	M4  A layer stays as long as an image or a container needs it.
//	M5  After a crash the store holds what it held before, or also the image whose
//	    import had returned.
//
// Terms: the id of an image is the digest of its configuration. A diff id is the
// digest of a layer's uncompressed tar file. A chain id names a layer together with
// all that it lies on. A blob is a file stored under its digest, as it came.
//
// Pulling from registries is not done here yet, nor are layers compressed with zstd.
package image
