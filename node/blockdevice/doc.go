// Package blockdevice mounts block devices that are volumes with a file system, and gives a device a file system if it has
// none, as kubelet does for local volumes.
package blockdevice
