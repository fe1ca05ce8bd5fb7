// Package images makes stand-ins for the images of upstream's end-to-end suite, as an OCI image layout. The programs are
// upstream's where the suite tests what they do (agnhost, sample-apiserver, etcd, the sidecars of CSI drivers); the CSI driver is
// test/conformance/csidriver, and the others are Debian's. Names and versions
// come from the suite itself, so a new version of it needs no change here.
package images
