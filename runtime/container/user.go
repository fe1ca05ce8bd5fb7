package container

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

// A UserSpec is the user that a container's process shall run as, as in the request or the image.
type UserSpec struct {
	User   string  // a name, a number, or either with ":group"; "" means root
	Group  *uint32 // replaces the user's primary group; nil means that it stays
	Groups []uint32

	// OnlyGroups leaves out the groups that the image's /etc/group gives the user;
	// only the primary one and Groups remain.
	OnlyGroups bool
}

// ResolveUser looks up names in the /etc/passwd and /etc/group of a root file
// system. A name that isn't there is an error, a number is not.
func ResolveUser(rootfs string, w UserSpec) (User, error) {
	passwd, err := readInRoot(rootfs, "/etc/passwd")
	if err != nil {
		return User{}, err
	}
	group, err := readInRoot(rootfs, "/etc/group")
	if err != nil {
		return User{}, err
	}
	found, err := user.GetExecUser(w.User, nil, bytes.NewReader(passwd), bytes.NewReader(group))
	if err != nil {
		return User{}, fmt.Errorf("user %q: %w (looked for in the image's /etc/passwd and /etc/group)", w.User, err)
	}
	out := User{UID: uint32(found.Uid), GID: uint32(found.Gid)}
	if w.Group != nil {
		out.GID = *w.Group
	}
	if !w.OnlyGroups {
		for _, gid := range found.Sgids {
			out.Groups = append(out.Groups, uint32(gid))
		}
	}
	// The primary group is one of them as well: files may be denied to a group, and a
	// process that changes its primary group must not get out of that (CVE-2022-36109).
	out.Groups = append(append(out.Groups, w.Groups...), out.GID)
	slices.Sort(out.Groups)
	out.Groups = slices.Compact(out.Groups)
	return out, nil
}

// NumericUser returns the number in a USER line of an image, or its name if it has
// one instead.
func NumericUser(spec string) (uid int64, name string, numeric bool) {
	who, _, _ := strings.Cut(spec, ":")
	if who == "" {
		return 0, "", true
	}
	n, err := strconv.ParseInt(who, 10, 64)
	return n, who, err == nil
}

// openInRoot opens a file as a process in the container would find it: links don't
// lead out.
func openInRoot(rootfs, path string) (*os.File, error) {
	root, err := unix.Open(rootfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("root file system %s: %w", rootfs, err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s of the image: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readInRoot reads a file of the image. One that isn't there is empty.
func readInRoot(rootfs, path string) ([]byte, error) {
	f, err := openInRoot(rootfs, path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const enough = 4 << 20 // a user database larger than this is an attack
	return io.ReadAll(io.LimitReader(f, enough))
}
