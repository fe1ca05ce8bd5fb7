package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/store"
)

const (
	valueSize = 400
	keys      = 10_000
	many      = 100_000
)

// A job is what one child process does.
type job struct {
	Engine  string
	What    string // "write", "fill", "load", "floor"
	Dir     string
	Writers int
	Time    time.Duration
}

// A result is the JSON that a child process prints.
type result struct {
	PerSecond float64 // commits
	Bytes     float64 // written per commit
	MiB       float64 // anonymous memory after a collection
	Seconds   float64
	Records   int
	Err       string
}

func main() {
	dir := flag.String("dir", ".", "where the engines keep their files; a real disk")
	d := flag.Duration("time", 3*time.Second, "length of a measurement")
	child := flag.String("child", "", "used by the program itself")
	flag.Parse()
	if *child != "" {
		var j job
		if err := json.Unmarshal([]byte(*child), &j); err != nil {
			panic(err)
		}
		r := do(j)
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	names := []string{"log (store/disk)", "pebble", "bbolt", "tidwall/wal"}
	table(*dir, names, *d)
	crashes(*dir, names)
}

func table(root string, names []string, d time.Duration) {
	fmt.Printf("| engine | commits/s with 1 / 32 / 128 writers | × bare fdatasync | bytes per %d-byte update, 1 / 32 writers | load %d | memory, 10,000 live | a byte flipped in the middle |\n|---|---|---|---|---|---|---|\n", valueSize, many)
	for _, name := range names {
		var rate, ratio, bytes []string
		var mem float64
		for _, writers := range []int{1, 32, 128} {
			dir := temp(root)
			floor := spawn(job{What: "floor", Dir: dir, Time: d / 3})
			r := spawn(job{Engine: name, What: "write", Dir: dir, Writers: writers, Time: d})
			must(r)
			rate = append(rate, fmt.Sprintf("%.0f", r.PerSecond))
			ratio = append(ratio, fmt.Sprintf("%.2f", r.PerSecond/floor.PerSecond))
			if writers < 128 {
				bytes = append(bytes, fmt.Sprintf("%.0f", r.Bytes))
			}
			mem = r.MiB
			_ = os.RemoveAll(dir)
		}
		dir := temp(root)
		must(spawn(job{Engine: name, What: "fill", Dir: dir}))
		load := spawn(job{Engine: name, What: "load", Dir: dir})
		must(load)
		if load.Records != many {
			load.Err = fmt.Sprintf("%d records loaded", load.Records)
			must(load)
		}
		flip(dir)
		damaged := spawn(job{Engine: name, What: "load", Dir: dir})
		says := cmp.Or(damaged.Err, fmt.Sprintf("nothing; %d of %d records loaded", damaged.Records, many))
		fmt.Printf("| %s | %s | %s | %s | %.0f ms | %.1f MiB | %s |\n", name, strings.Join(rate, " / "), strings.Join(ratio, " / "),
			strings.Join(bytes, " / "), 1000*load.Seconds, mem, strings.ReplaceAll(says, root, ""))
		_ = os.RemoveAll(dir)
	}
}

func temp(root string) string {
	dir, err := os.MkdirTemp(root, "bench")
	if err != nil {
		panic(err)
	}
	return dir
}

func must(r result) {
	if r.Err != "" {
		panic(r.Err)
	}
}

// spawn does a job in a process of its own, so that memory and bytes are its own.
func spawn(j job) result {
	b, _ := json.Marshal(j)
	out, err := exec.Command(os.Args[0], "-child", string(b)).CombinedOutput()
	var r result
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if jerr := json.Unmarshal([]byte(lines[len(lines)-1]), &r); jerr != nil {
		r.Err = fmt.Sprintf("the process died: %v: %.120s", err, lines[0])
	}
	return r
}

// flip changes one byte in the middle of the largest file.
func flip(dir string) {
	var name string
	var size int64
	_ = filepath.Walk(dir, func(p string, i os.FileInfo, err error) error {
		if err == nil && !i.IsDir() && i.Size() > size {
			name, size = p, i.Size()
		}
		return nil
	})
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	b := make([]byte, size)
	_, _ = io.ReadFull(f, b)
	at := len(strings.TrimRight(string(b), "\x00")) / 2
	_, _ = f.WriteAt([]byte{b[at] ^ 0x55}, int64(at))
}

type value []byte

func (v value) Bytes() []byte                        { return v }
func (v value) Place(store.Revision, store.Revision) {}

func do(j job) (r result) {
	if j.What == "floor" {
		return floor(j)
	}
	defer func() {
		if p := recover(); p != nil {
			r.Err = fmt.Sprintf("panic: %.100v", p)
		}
	}()
	b, err := engines[j.Engine](j.Dir)
	if err != nil {
		return result{Err: err.Error()}
	}
	switch j.What {
	case "fill":
		return fill(b)
	case "load":
		return load(b)
	case "acknowledge":
		acknowledge(b)
	case "dump":
		dump(b)
		os.Exit(0)
	}
	return write(j, b)
}

// floor is a bare loop of a write and an fdatasync.
func floor(j job) result {
	f, err := os.Create(filepath.Join(j.Dir, "floor"))
	if err != nil {
		return result{Err: err.Error()}
	}
	defer os.Remove(f.Name())
	defer f.Close()
	_, _ = f.Write(make([]byte, 64<<20))
	_ = f.Sync()
	data := make([]byte, valueSize)
	n, start := 0, time.Now()
	for ; time.Since(start) < j.Time; n++ {
		_, _ = f.WriteAt(data, int64(n*valueSize)%(60<<20))
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return result{Err: err.Error()}
		}
	}
	return result{PerSecond: float64(n) / time.Since(start).Seconds()}
}

func fill(b store.Backend) result {
	ctx := context.Background()
	if _, err := b.Load(ctx, func(store.Entry) error { return nil }); err != nil {
		return result{Err: err.Error()}
	}
	var rev store.Revision
	for rev < many {
		var batch []store.Entry
		for range 100 {
			rev++
			batch = append(batch, store.Entry{Key: key(int(rev)), Data: random(), Created: rev, Revision: rev})
		}
		if err := b.Commit(ctx, store.Batch{Entries: batch}); err != nil {
			return result{Err: err.Error()}
		}
	}
	if err := b.Close(); err != nil {
		return result{Err: err.Error()}
	}
	return result{}
}

func load(b store.Backend) result {
	start, n := time.Now(), 0
	_, err := b.Load(context.Background(), func(e store.Entry) error { n++; return nil })
	r := result{Seconds: time.Since(start).Seconds(), Records: n}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

func key(i int) string { return fmt.Sprintf("pods/namespace-%d/web-%06d", i%20, i) }

func random() []byte {
	b := make([]byte, valueSize)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz012345"[rand.IntN(32)]
	}
	return b
}

func write(j job, b store.Backend) result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := store.Open(ctx, b, store.Options{
		History: 64,
		Decode:  func(_ string, d []byte) (store.Value, error) { return value(d), nil },
	})
	if err != nil {
		return result{Err: err.Error()}
	}
	var wg sync.WaitGroup
	var end error
	wg.Go(func() { end = s.Run(ctx) })

	var fail sync.Once
	var failure error
	commit := func(i int) {
		k := key(i)
		var have store.Revision
		if r, err := s.Get(k); err == nil {
			have = r.Revision
		}
		if _, err := s.Commit(ctx, store.Write{Key: k, Value: value(random()), Expect: have}); err != nil {
			fail.Do(func() { failure = err })
		}
	}
	all := func(writers int, f func(w int)) {
		var g sync.WaitGroup
		for w := range writers {
			g.Go(func() { f(w) })
		}
		g.Wait()
	}
	all(100, func(w int) {
		for i := w; i < keys; i += 100 {
			commit(i)
		}
	})
	from := written()
	start := time.Now()
	counts := make([]int, j.Writers)
	all(j.Writers, func(w int) {
		for time.Since(start) < j.Time && failure == nil {
			commit(w + j.Writers*rand.IntN(keys/j.Writers))
			counts[w]++
		}
	})
	took := time.Since(start).Seconds()
	n := 0
	for _, c := range counts {
		n += c
	}
	bytes := written() - from
	runtime.GC()
	mem := anonymous()
	cancel()
	wg.Wait()
	r := result{PerSecond: float64(n) / took, Bytes: float64(bytes) / float64(n), MiB: mem}
	if err := errors.Join(failure, end); err != nil {
		r.Err = err.Error()
	}
	return r
}

// written returns the bytes that this process has sent to storage.
func written() int64 { return proc("/proc/self/io", "write_bytes:") }

func anonymous() float64 { return float64(proc("/proc/self/smaps_rollup", "Anonymous:")) / 1024 }

func proc(file, field string) int64 {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			var n int64
			_, _ = fmt.Sscan(rest, &n)
			return n
		}
	}
	return 0
}
