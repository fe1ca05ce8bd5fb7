package store

import (
	"fmt"
	"sync/atomic"
)

// # How much memory records may take
//
// Every record is held in memory, so a store without a bound ends its process, and again at each start. The quota
// (Options.Quota) bounds the size of the live records, as [Sized] and a fixed sum for the store's own structures count
// it. The history of each resource, which watchers read, holds old values as well; all histories together may take a
// quarter of the quota on top, and the resource with the largest history loses its oldest events first, so its watchers
// have to list again and others do not.
//
// A write that makes the records take more than the quota is refused with a [*QuotaError] and changes nothing (store-I11),
// except that
//
//   - a deletion, and a write that makes its record no larger, always succeeds;
//   - an update of an object that is being deleted (Frees) may go a sixteenth beyond the quota;
//   - a write that the cluster needs to go on (ForRecovery) may go an eighth beyond;
//   - the writes of administrators (ForAdministration) have a sixteenth of their own, which no other write can take;
//   - the mark with which a deletion begins, and the renewal of a Lease (ForMark), always succeed. A value counts for the
//     memory of the mark before it has one, so that marks take nothing from others.
//
// The last sixteenth of the quota and the reserves are shared: the share of a write counts for its account
// (Write.Account), such as that of its namespace, and a write is refused as well if its account would then have more than
// is left of what the write may use. So one namespace gets at most half of them, whatever it writes or makes controllers
// write, and a second one half of the rest. This is the dynamic threshold by which switches share the memory of their
// queues (Choudhury and Hahne, 1998): it needs no number of accounts, and leaves something for accounts that have little.

// A Reserve is a part of the memory beyond the quota that a write may use.
type Reserve int

// The reserves.
const (
	NoReserve         Reserve = iota
	ForAdministration         // for writes of administrators, whose account is the same for all
	ForRecovery               // for writes without which the cluster cannot go on, such as updates by controllers and the status of nodes
	ForMark                   // for the begin of a deletion, and Leases; without a bound
)

// Shares of the quota, as its divisors.
const (
	administrationShare = 16
	recoveryShare       = 8
	historyShare        = 4
	// The last part of the quota, which accounts share. A store that has refused writes reports that it has space again
	// when so much of the quota is free.
	sharedShare = 16
)

// recordOverhead is about the memory of a record beside its value: the record, its places in the tree and in the
// history, and the parts of the value that are not the object. termOverhead is the same for an index term.
const (
	recordOverhead = 512
	termOverhead   = 128
)

// A Sized is a [Value] that takes more memory than its bytes.
type Sized interface {
	// Footprint returns about how many bytes of memory the value takes while it is stored, with the encodings that are
	// kept for readers. It is called before Place, and must be pure.
	Footprint() int
}

// A QuotaError says that a write needs more memory than the quota leaves. It matches ErrFull.
type QuotaError struct {
	Quota int64 // bytes, as Options.Quota
	Used  int64 // bytes that the records take without the write
	Needs int64 // bytes that the write adds

	// Account is that of the write if there is enough memory, but the account would take more than it leaves.
	Account string
}

func (e *QuotaError) Error() string {
	text := fmt.Sprintf("the objects in memory take %s of the quota of %s, and this write needs %s more", Bytes(e.Used), Bytes(e.Quota), Bytes(e.Needs))
	if e.Account != "" {
		text += fmt.Sprintf("; of the last %s, %s may take at most half", Bytes(e.Quota/sharedShare), e.Account)
	}
	return text
}

// Is makes errors.Is(err, ErrFull) true.
func (e *QuotaError) Is(target error) bool { return target == ErrFull }

// A MemoryError says that the records of a backend need more memory than Options.LoadLimit, so that [Open] failed.
type MemoryError struct {
	Needs int64 // bytes; at least
	Limit int64 // bytes, as Options.LoadLimit
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the objects need about %s of memory, and at most %s are available for them", Bytes(e.Needs), Bytes(e.Limit))
}

// A Measurer is a backend that knows the size of its live records before it loads them.
type Measurer interface {
	// Measure returns the size of the live records, as [Entry.Size] counts, or an upper bound if that is not more than
	// enough. It is called before Load, which reports damage that Measure finds again.
	Measure(enough int64) (int64, error)
}

// quota counts the memory of records. It is guarded by the mu of its writes, except for over.
type quota struct {
	limit int64                      // 0: none
	used  int64                      // by the accepted writes
	over  atomic.Pointer[QuotaError] // the first write that was refused since used was well below the limit; nil if none was

	// accounts have the bytes that each account has taken of the shared part and the reserves, and administrators those
	// taken of the reserves. Bytes that an account frees are taken off. All entries are positive.
	accounts map[string]int64
}

// administrators is the account of all writes for ForAdministration.
const administrators = "administrators"

func (w *Write) account() string {
	if w.Reserve == ForAdministration {
		return administrators
	}
	return w.Account
}

// admit reports whether a write may make the records take so many more bytes. If it may, [quota.count] must follow.
func (q *quota) admit(growth int64, w Write) error {
	if q.limit == 0 || growth <= 0 || w.Delete || w.Reserve == ForMark {
		return nil
	}
	after := q.used + growth
	if after <= q.unshared() {
		return nil
	}
	refusal := &QuotaError{Quota: q.limit, Used: q.used, Needs: growth}
	if w.Reserve == ForAdministration {
		if after > q.limit && q.accounts[administrators]+min(growth, after-q.limit) > q.limit/administrationShare {
			return refusal
		}
		return nil
	}
	most := q.limit
	switch {
	case w.Reserve == ForRecovery:
		most += q.limit/recoveryShare + q.accounts[administrators]
	case w.Frees:
		most += q.limit/administrationShare + q.accounts[administrators]
	}
	switch left := most - after; {
	case left < 0:
		return refusal
	case w.Account != "" && q.accounts[w.Account]+min(growth, after-q.unshared()) > left:
		refusal.Account = w.Account
		return refusal
	}
	return nil
}

// count adds the growth of an accepted write, which may be negative, to its account. With the opposite growth it takes back
// a write that failed.
func (q *quota) count(growth int64, account string) {
	q.used += growth
	if q.used <= q.unshared() {
		clear(q.accounts)
		return
	}
	defer q.settleAdministrators()
	if growth > 0 {
		free := q.unshared()
		if account == administrators {
			free = q.limit
		}
		growth = min(growth, max(0, q.used-free))
	}
	switch now := q.accounts[account] + growth; {
	case account == "" || now <= 0:
		delete(q.accounts, account)
	case q.accounts == nil:
		q.accounts = map[string]int64{account: now}
	default:
		q.accounts[account] = now
	}
}

// settleAdministrators lowers the account of administrators to the bytes beyond the quota, after others have freed some.
func (q *quota) settleAdministrators() {
	switch beyond := max(0, q.used-q.limit); {
	case q.accounts[administrators] <= beyond:
	case beyond == 0:
		delete(q.accounts, administrators)
	default:
		q.accounts[administrators] = beyond
	}
}

// unshared returns up to how many bytes any account may take.
func (q *quota) unshared() int64 { return q.limit - q.limit/sharedShare }

// memoryOf returns the bytes of a record in memory. data is its saved form.
func memoryOf(rec *record, data []byte) int {
	size := recordOverhead + 2*len(rec.Key)
	if v, ok := rec.Value.(Sized); ok {
		size += v.Footprint()
	} else {
		size += len(data)
	}
	for _, t := range rec.terms {
		size += termOverhead + len(t)
	}
	return size
}

// growth returns how many more bytes of memory the records take after a write.
func growth(w Write, rec, now *record, exists bool) (bytes int64) {
	if !w.Delete {
		bytes = int64(rec.memory)
	}
	if exists {
		bytes -= int64(now.memory)
	}
	return bytes
}

// refused records that a write was refused for the quota, and notifies of the first one.
func (s *Store) refused(err *QuotaError) {
	if !s.accept.quota.over.CompareAndSwap(nil, err) {
		return
	}
	s.opts.Log.Error("the quota of the store is used up: only deletions and updates that free memory succeed", "err", err)
	s.opts.Notify(Notice{Warning: true, Reason: "StoreQuotaExceeded", Message: fmt.Sprintf("Only deletions and updates that free memory succeed: %v", err)})
}

// relieved notifies when a store that refused writes has memory again.
func (s *Store) relieved() {
	q := &s.accept.quota
	over := q.over.Load()
	if over == nil {
		return
	}
	s.accept.mu.Lock()
	used := q.used
	s.accept.mu.Unlock()
	if used > q.unshared() || !q.over.CompareAndSwap(over, nil) {
		return
	}
	s.opts.Log.Info("the store is well below its quota again", "used", used, "quota", q.limit)
	s.opts.Notify(Notice{Reason: "StoreQuotaRecovered", Message: fmt.Sprintf("The objects take %s of the quota of %s: all writes succeed", Bytes(used), Bytes(q.limit))})
}

// OverQuota returns the need of the first refused write, and the records' size now, if writes have been refused for
// the quota since the records were well below it. It returns nil otherwise.
func (s *Store) OverQuota() *QuotaError {
	over := s.accept.quota.over.Load()
	if over == nil {
		return nil
	}
	s.accept.mu.Lock()
	defer s.accept.mu.Unlock()
	return &QuotaError{Quota: over.Quota, Used: s.accept.quota.used, Needs: over.Needs}
}

// A load counts the memory of the records that a backend gives back.
type load struct {
	limit int64
	used  int64
}

// over reports whether there are more records than memory. They are then only counted.
func (l *load) over() bool { return l.limit > 0 && l.used > l.limit }

// measure returns a [*MemoryError] if the backend says before loading that there is too much.
func (l *load) measure(b Backend) error {
	m, ok := b.(Measurer)
	if !ok || l.limit == 0 {
		return nil
	}
	if size, err := m.Measure(l.limit / 4); err == nil && size > l.limit {
		return &MemoryError{Needs: size, Limit: l.limit}
	}
	return nil
}

// Bytes returns a number of bytes for people.
func Bytes(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
