package local

import (
	"fmt"

	"github.com/sampan-io/sampan/internal/quantity"
)

// storeQuotaFlag is the name of the flag that bounds the memory of the objects.
const storeQuotaFlag = "store-quota"

// The bounds of the default quota and the smallest one that can be set, in bytes. With the largest default the process
// stays below 1 GiB, whatever users write: objects beyond the quota, histories and garbage come on top of it.
const (
	leastQuota       = 16 << 20
	leastAutoQuota   = 64 << 20
	mostDefaultQuota = 512 << 20
)

func storeFlags() []ServerFlag {
	return []ServerFlag{{
		Name: storeQuotaFlag, Kind: Size,
		Usage: "memory that objects may take, such as 512Mi: writes beyond it are refused, deletions succeed (default: a quarter of the available memory, 64Mi to 512Mi)",
	}}
}

// DefaultStoreQuota returns the quota in bytes for a process that may have so many bytes of memory; 0 if that is not known.
func DefaultStoreQuota(available int64) int64 {
	if available <= 0 {
		return mostDefaultQuota
	}
	return min(max(available/4, leastAutoQuota), mostDefaultQuota)
}

// StoreQuota returns the memory in bytes that objects may take, or 0 for the default.
func (s ServerFlags) StoreQuota() int64 {
	bytes, err := parseSize(s.Get(storeQuotaFlag))
	if err != nil {
		return 0
	}
	return bytes
}

// parseSize returns a number of bytes.
func parseSize(text string) (int64, error) {
	q, err := quantity.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("must be a size such as 512Mi, got %q", text)
	}
	bytes, ok := q.AsInt64()
	if !ok || bytes < leastQuota {
		return 0, fmt.Errorf("must be at least 16Mi and a whole number of bytes, got %q", text)
	}
	return bytes, nil
}
