package disk

import (
	"os"

	"github.com/sampan-io/sampan/store"
)

// Measure implements [store.Measurer]. Without a long log it costs no more than the sizes of the files; otherwise it
// reads them once, and keeps only keys.
func (d *directory) Measure(enough int64) (int64, error) {
	files := d.segments
	if d.snapshot != nil {
		files = append([]entry{*d.snapshot}, files...)
	}
	total := int64(0)
	for _, e := range files {
		info, err := os.Stat(e.name)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	if total <= enough {
		return total, nil
	}
	sizes, live := map[string]int{}, int64(0)
	count := func(payload []byte) error {
		if !hasEntries(payload[0]) {
			return nil
		}
		return decodeEntries(payload, func(r raw) error {
			size := (&store.Entry{Key: string(r.key), Data: r.data}).Size()
			if r.deleted {
				size = 0
			}
			live += int64(size - sizes[string(r.key)])
			sizes[string(r.key)] = size
			return nil
		})
	}
	if d.snapshot != nil {
		if _, err := readSnapshot(*d.snapshot, count); err != nil {
			return 0, err
		}
	}
	for i, e := range d.segments {
		if _, err := readSegment(e, i == len(d.segments)-1, count); err != nil {
			return 0, err
		}
	}
	return live, nil
}
