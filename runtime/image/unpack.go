package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// budget bounds what an import or a pull may write.
type budget struct {
	limit int64
	over  error // what take returns when the limit is reached

	mu    sync.Mutex
	used  int64 // guarded by mu
	files int   // guarded by mu
}

// maxFiles bounds the entries of one import: each costs an inode.
const maxFiles = 4 << 20

func (b *budget) take(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files++; b.files > maxFiles {
		return fmt.Errorf("there are more than %d files", maxFiles)
	}
	if bytes < 0 || bytes > b.limit-b.used {
		return b.over
	}
	b.used += bytes
	return nil
}

const (
	whiteout       = ".wh."         // before the name of what a layer removes
	opaque         = ".wh..wh..opq" // in a directory whose content in lower layers is hidden
	reservedPrefix = ".wh..wh."     // of a file system long gone; nothing else is meant by them
)

// apply unpacks one layer over the tree at root (M3). Every error names the entry.
func apply(root string, archive *tar.Reader, room *budget) error {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", root, err)
	}
	defer unix.Close(top)
	u := &unpacker{top: top, room: room, made: map[string]bool{}, buf: make([]byte, 256<<10)}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return u.finishDirs()
		}
		if err != nil {
			return fmt.Errorf("after entry %q: %w", u.last, err)
		}
		u.last = h.Name
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

type unpacker struct {
	top  int // descriptor of the root
	room *budget
	last string // name of the entry before
	made map[string]bool
	dirs []dirTime
	buf  []byte
}

type dirTime struct {
	name     string
	modified time.Time
}

// inside cleans a name from an archive, and refuses one that leads out.
func inside(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errors.New("its name leads out of the image")
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", errors.New(`its name contains ".."`)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", errors.New("its name contains a zero byte")
	}
	return clean, nil
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid >= math.MaxUint32 || h.Gid >= math.MaxUint32 {
		return fmt.Errorf("its owner %d:%d is impossible", h.Uid, h.Gid)
	}
	size := h.Size
	if h.Typeflag != tar.TypeReg {
		size = 0
	}
	if err := u.room.take(size); err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root of an image must be a directory")
		}
		return u.attributes(u.top, ".", name, h)
	}
	dir, base := path.Split(name)
	parent, err := u.openDir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if strings.HasPrefix(base, whiteout) {
		return u.whiteout(parent, dir, base)
	}
	if err := u.makeWay(parent, base, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = unix.Mkdirat(parent, base, 0o700)
		if errors.Is(err, unix.EEXIST) {
			err = nil
		}
	case tar.TypeReg:
		err = u.file(parent, base, h, content)
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, parent, base)
	case tar.TypeLink:
		if err := u.hardLink(h.Linkname, parent, base); err != nil {
			return err
		}
		u.made[name] = true
		return nil // its attributes are those of the file it is another name of
	case tar.TypeFifo:
		err = unix.Mknodat(parent, base, unix.S_IFIFO|0o600, 0)
	case tar.TypeChar, tar.TypeBlock:
		err = device(parent, base, h)
	default:
		return fmt.Errorf("its type %q is not one of a file, directory, link, FIFO or device", string(h.Typeflag))
	}
	if err != nil {
		return err
	}
	u.made[name] = true
	return u.attributes(parent, base, name, h)
}

// openDir opens a directory of the tree as a process in the container would find
// it; missing ones are made.
func (u *unpacker) openDir(dir string) (int, error) { return u.openOrMake(dir, 0) }

func (u *unpacker) openOrMake(dir string, depth int) (int, error) {
	const deepest = 255 // directories, and links to what isn't there yet
	if depth > deepest {
		return -1, fmt.Errorf("directory %s: %w", dir, unix.ELOOP)
	}
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if dir == "" {
		dir = "."
	}
	fd, err := unix.Openat2(u.top, dir, how)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		if err != nil {
			return -1, fmt.Errorf("directory %s: %w", dir, err)
		}
		return fd, nil
	}
	upper, base := path.Split(path.Clean(dir))
	parent, err := u.openOrMake(upper, depth+1)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, base, 0o755); errors.Is(err, unix.EEXIST) {
		to, err := os.Readlink(under(parent, base))
		if err != nil {
			return -1, fmt.Errorf("directory %s: %w", dir, err)
		}
		if !path.IsAbs(to) {
			to = path.Join("/", upper, to)
		}
		return u.openOrMake(strings.TrimLeft(path.Clean(to), "/"), depth+1)
	} else if err != nil {
		return -1, fmt.Errorf("directory %s: %w", dir, err)
	}
	return unix.Openat2(parent, base, &unix.OpenHow{Flags: how.Flags | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH})
}

// under is a path to something in an open directory for calls that want a path.
func under(dir int, base string) string { return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + base }

// makeWay removes what has the name of an entry, unless a directory replaces one.
func (u *unpacker) makeWay(parent int, base string, isDir bool) error {
	var st unix.Stat_t
	err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if isDir && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	return os.RemoveAll(under(parent, base))
}

func (u *unpacker) whiteout(parent int, dir, base string) error {
	switch {
	case base == opaque:
		return u.hide(parent, dir)
	case strings.HasPrefix(base, reservedPrefix):
		return nil
	}
	name := strings.TrimPrefix(base, whiteout)
	if name == "" || name == "." || name == ".." {
		return errors.New("it removes no file by name")
	}
	if u.made[path.Join(dir, name)] {
		return nil // a whiteout is about lower layers only
	}
	return os.RemoveAll(under(parent, name))
}

// hide removes what lower layers have put into a directory.
func (u *unpacker) hide(parent int, dir string) error {
	entries, err := os.ReadDir(under(parent, "."))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if u.made[path.Join(dir, e.Name())] {
			continue
		}
		if err := os.RemoveAll(under(parent, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) file(parent int, base string, h *tar.Header, content io.Reader) error {
	fd, err := unix.Openat(parent, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{content}, u.buf)
	if err == nil && n != h.Size {
		err = fmt.Errorf("it has %d bytes, but %d are announced", n, h.Size)
	}
	return errors.Join(err, f.Close())
}

func (u *unpacker) hardLink(to string, parent int, base string) error {
	target, err := inside(to)
	if err != nil {
		return fmt.Errorf("it is a link to %q: %w", to, err)
	}
	dir, last := path.Split(target)
	from, err := u.openDir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if err := unix.Linkat(from, last, parent, base, 0); err != nil {
		return fmt.Errorf("link to %q: %w", to, err)
	}
	return nil
}

// device makes a device node. It has no effect: root file systems are mounted without
// devices, and a container has a separate /dev.
func device(parent int, base string, h *tar.Header) error {
	if h.Devmajor < 0 || h.Devminor < 0 || h.Devmajor > math.MaxInt32 || h.Devminor > math.MaxInt32 {
		return fmt.Errorf("its device number %d:%d is impossible", h.Devmajor, h.Devminor)
	}
	mode := uint32(unix.S_IFBLK)
	if h.Typeflag == tar.TypeChar {
		mode = unix.S_IFCHR
		if h.Devmajor == 0 && h.Devminor == 0 {
			return errors.New("the character device 0:0 means a removed file to overlayfs and can't be in an image")
		}
	}
	return unix.Mknodat(parent, base, mode|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
}

// attributes gives an entry its owner, mode, extended attributes and times, in the
// order in which none undoes another.
func (u *unpacker) attributes(parent int, base, name string, h *tar.Header) error {
	if err := unix.Fchownat(parent, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("owner %d:%d: %w", h.Uid, h.Gid, err)
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(parent, base, uint32(h.Mode&0o7777), 0); err != nil {
			return fmt.Errorf("mode %o: %w", h.Mode, err)
		}
	}
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		// Others steer the kernel, overlayfs above all, or mean something on the
		// machine only where the image was made.
		if !ok || attr != "security.capability" && !strings.HasPrefix(attr, "user.") && !strings.HasPrefix(attr, "system.posix_acl_") {
			continue
		}
		err := unix.Lsetxattr(under(parent, base), attr, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !(errors.Is(err, unix.EPERM) && strings.HasPrefix(attr, "user.")) {
			return fmt.Errorf("extended attribute %s: %w", attr, err)
		}
	}
	if h.Typeflag == tar.TypeDir {
		u.dirs = append(u.dirs, dirTime{name, h.ModTime}) // its time changes with what is put into it
		return nil
	}
	return setTime(parent, base, h.ModTime)
}

func setTime(parent int, base string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil || t.IsZero() {
		return nil // an invalid time isn't worth failing for
	}
	if err := unix.UtimesNanoAt(parent, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	return nil
}

func (u *unpacker) finishDirs() error {
	for _, d := range slices.Backward(u.dirs) {
		fd, err := u.openDir(d.name)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
				continue // a later entry replaced it
			}
			return err
		}
		err = setTime(fd, ".", d.modified)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("entry %q: %w", d.name, err)
		}
	}
	return nil
}
