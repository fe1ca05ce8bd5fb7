package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A block volume is a file, and a loop device while it is published.

// loopsOf returns the paths of the loop devices of a file.
func loopsOf(file string) (devices []string, err error) {
	var want unix.Stat_t
	if err := unix.Stat(file, &want); err != nil {
		return nil, err
	}
	all, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		_ = f.Close()
		if err == nil && info.Inode == want.Ino && info.Device == want.Dev {
			devices = append(devices, path)
		}
	}
	return devices, nil
}

// attachLoop returns the path of a loop device of a file, which it makes if there is none.
func attachLoop(file string) (string, error) {
	devices, err := loopsOf(file)
	if err != nil {
		return "", err
	}
	if len(devices) > 0 {
		return devices[0], nil
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer backing.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", number)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(backing.Fd())}) // descriptors
		_ = device.Close()
		if errors.Is(err, unix.EBUSY) {
			continue // another process has taken it
		}
		if err != nil {
			return "", fmt.Errorf("set up %s: %w", path, err)
		}
		return path, nil
	}
}

// detachLoops frees the loop devices of a file.
func detachLoops(file string) error { return controlLoops(file, unix.LOOP_CLR_FD) }

// resizeLoops makes the loop devices of a file as large as the file.
func resizeLoops(file string) error { return controlLoops(file, unix.LOOP_SET_CAPACITY) }

// controlLoops sends a request without an argument to the loop devices of a file.
func controlLoops(file string, request uint) error {
	devices, err := loopsOf(file)
	for _, path := range devices {
		f, failed := os.Open(path)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, unix.IoctlSetInt(int(f.Fd()), request, 0), f.Close())
	}
	return err
}
