package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/volumes"
)

// idsPerPod is how many user ids, and as many group ids, a pod with users of its own has, as kubelet has it.
const idsPerPod = 65536

// users gives pods with "hostUsers: false" ranges of the node's user and group ids: range i has the ids from i*idsPerPod on.
// Range 0 is the node's own. No two pods have the same one. The range of a pod is in the file userns of its directory, in
// kubelet's format, so that a restarted agent gives it to no other pod.
type users struct {
	files *volumes.Files
	count int // of ranges

	mu    sync.Mutex
	of    map[types.UID]uint32 // guarded by mu; the range of a pod
	taken map[uint32]types.UID // guarded by mu
}

// A usersFile is the content of the file userns.
type usersFile struct {
	UIDs []idRange `json:"uidMappings"`
	GIDs []idRange `json:"gidMappings"`
}

type idRange struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func newUsers(f *volumes.Files, pods int) *users {
	const ranges = 1<<16 - 2 // ids have 32 bits; the last one means none
	return &users{files: f, count: min(pods, ranges), of: map[types.UID]uint32{}, taken: map[uint32]types.UID{}}
}

func (u *users) file(uid types.UID) string { return filepath.Join(u.files.Dir(uid), "userns") }

// open reads which pods have ranges. A pod with a file that this agent could not have written, such as an empty one
// after a power cut, has the range that runs returns, which is that of its sandbox in the runtime, and gets another one
// when it starts if that is 0 or not its own. It returns an error about each such file, and an error if the runtime
// can't be asked.
func (u *users) open(runs func(types.UID) (uint32, error)) (damaged []error, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var lost []types.UID
	for _, uid := range u.files.Pods() {
		b, err := os.ReadFile(u.file(uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var i uint32
		if err == nil {
			i, err = u.parse(b)
		}
		if err != nil {
			damaged = append(damaged, fmt.Errorf("users of pod %s: %s: %w", uid, u.file(uid), err))
			lost = append(lost, uid)
			continue
		}
		u.of[uid], u.taken[i] = i, uid
	}
	for _, uid := range lost {
		first, err := runs(uid)
		if err != nil {
			return damaged, fmt.Errorf("users of pod %s: %w", uid, err)
		}
		i := first / idsPerPod
		if _, taken := u.taken[i]; i == 0 || first%idsPerPod != 0 || taken {
			if err := os.RemoveAll(u.file(uid)); err != nil {
				return damaged, err
			}
			continue
		}
		if err := u.write(uid, i); err != nil {
			return damaged, err
		}
		u.of[uid], u.taken[i] = i, uid
	}
	return damaged, nil
}

// parse returns the range in the content of the file of a pod, if no other pod has it.
func (u *users) parse(b []byte) (uint32, error) {
	var f usersFile
	if err := json.Unmarshal(b, &f); err != nil || len(f.UIDs) != 1 || len(f.GIDs) != 1 || f.UIDs[0] != f.GIDs[0] ||
		f.UIDs[0].ContainerID != 0 || f.UIDs[0].Length != idsPerPod || f.UIDs[0].HostID%idsPerPod != 0 || f.UIDs[0].HostID == 0 {
		return 0, fmt.Errorf("want one range of %d ids from a multiple of that on", idsPerPod)
	}
	i := f.UIDs[0].HostID / idsPerPod
	if other, twice := u.taken[i]; twice {
		return 0, fmt.Errorf("it has the ids of pod %s", other)
	}
	return i, nil
}

// sandboxUsers returns the first of the ids of a pod's newest sandbox in the runtime; 0 if it has the node's users, or
// if the pod has no sandbox.
func (n *Node) sandboxUsers(ctx context.Context, uid types.UID) (uint32, error) {
	list, err := n.opts.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{LabelSelector: map[string]string{crispec.PodUID: string(uid)}})
	if err != nil {
		return 0, err
	}
	var newest uint32
	var attempt uint32
	for _, s := range list {
		r, err := n.opts.Runtime.PodSandboxStatus(ctx, s.GetId())
		if criclient.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		of := r.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
		if of.GetMode() == cri.NamespaceMode_POD && len(of.GetUids()) == 1 && (newest == 0 || s.GetMetadata().GetAttempt() >= attempt) {
			newest, attempt = of.GetUids()[0].GetHostId(), s.GetMetadata().GetAttempt()
		}
	}
	return newest, nil
}

// allocate gives the pod a range, unless it has one.
func (u *users) allocate(uid types.UID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, has := u.of[uid]; has {
		return nil
	}
	for i := uint32(1); i <= uint32(u.count); i++ {
		if _, taken := u.taken[i]; taken {
			continue
		}
		if err := u.write(uid, i); err != nil {
			return fmt.Errorf("users of the pod: %w", err)
		}
		u.of[uid], u.taken[i] = i, uid
		return nil
	}
	return errors.New("could not find an empty slot to allocate a user namespace")
}

// write stores a range so that it is there after a crash.
func (u *users) write(uid types.UID, i uint32) error {
	ids := []idRange{{HostID: i * idsPerPod, Length: idsPerPod}}
	b, err := json.Marshal(usersFile{UIDs: ids, GIDs: ids})
	if err != nil {
		return err
	}
	path := u.file(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // containers' users reach their own files
		return err
	}
	return wholefile.Write(path, b, 0o600, wholefile.Durable)
}

// get returns the users of a pod for the runtime: those of the node unless the pod has a range.
func (u *users) get(pod *corev1.Pod) *cri.UserNamespace {
	u.mu.Lock()
	defer u.mu.Unlock()
	i, own := u.of[pod.UID]
	if !own {
		return &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}
	}
	ids := func() []*cri.IDMapping { return []*cri.IDMapping{{HostId: i * idsPerPod, Length: idsPerPod}} }
	return &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids(), Gids: ids()}
}

// release takes the range of a pod back, whose processes and files are gone.
func (u *users) release(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i, has := u.of[uid]; has {
		delete(u.of, uid)
		delete(u.taken, i)
	}
}
