package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/store"
)

// crashes prints what engines make of SIGKILL while 32 writers write, and of a
// log whose last bytes are missing.
func crashes(root string, names []string) {
	fmt.Printf("\n| engine | acknowledged writes lost in 5 kills | the last 7 bytes of the newest file cut |\n|---|---|---|\n")
	for _, name := range names {
		var says []string
		for range 5 {
			dir := temp(root)
			says = append(says, kill(name, dir))
			_ = os.RemoveAll(dir)
		}
		dir := temp(root)
		must(spawn(job{Engine: name, What: "fill", Dir: dir}))
		cut(dir)
		r := spawn(job{Engine: name, What: "load", Dir: dir})
		torn := fmt.Sprintf("%d of %d records loaded", r.Records, many)
		if r.Err != "" {
			torn = r.Err
		}
		_ = os.RemoveAll(dir)
		fmt.Printf("| %s | %s | %s |\n", name, strings.Join(says, ", "), strings.ReplaceAll(torn, root, ""))
	}
}

// cut shortens the file that was written to last.
func cut(dir string) {
	var name string
	var last time.Time
	_ = filepath.Walk(dir, func(p string, i os.FileInfo, err error) error {
		if err == nil && !i.IsDir() && i.Size() > 1000 && i.ModTime().After(last) {
			name, last = p, i.ModTime()
		}
		return nil
	})
	b, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	_ = os.Truncate(name, int64(len(strings.TrimRight(string(b), "\x00"))-7))
}

func kill(engine, dir string) string {
	b, _ := json.Marshal(job{Engine: engine, What: "acknowledge", Dir: dir})
	cmd := exec.Command(os.Args[0], "-child", string(b))
	out, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	said := map[string]int{}
	var timer *time.Timer
	for in := bufio.NewScanner(out); in.Scan(); {
		if timer == nil {
			timer = time.AfterFunc(time.Duration(100+rand.IntN(200))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		var k string
		var n int
		if _, err := fmt.Sscan(in.Text(), &k, &n); err == nil {
			said[k] = n
		}
	}
	_ = cmd.Wait()
	b, _ = json.Marshal(job{Engine: engine, What: "dump", Dir: dir})
	dump, err := exec.Command(os.Args[0], "-child", string(b)).Output()
	if err != nil {
		return "does not open"
	}
	have := map[string]int{}
	for line := range strings.Lines(string(dump)) {
		var k string
		var n int
		if _, err := fmt.Sscan(line, &k, &n); err == nil {
			have[k] = n
		}
	}
	lost := 0
	for k, n := range said {
		if have[k] < n {
			lost++
		}
	}
	return fmt.Sprintf("%d of %d", lost, len(said))
}

func acknowledge(b store.Backend) {
	s, err := store.Open(context.Background(), b, store.Options{
		History: 64, Decode: func(_ string, d []byte) (store.Value, error) { return value(d), nil },
	})
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(context.Background()) })
	var mu sync.Mutex
	for w := range 32 {
		wg.Go(func() {
			for i := 0; ; i++ {
				k := fmt.Sprintf("pods/%d/%d", w, i)
				if _, err := s.Commit(context.Background(), store.Write{Key: k, Value: value(fmt.Sprint(i + 1))}); err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Println(k, i+1)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func dump(b store.Backend) {
	if _, err := b.Load(context.Background(), func(e store.Entry) error {
		_, err := fmt.Println(e.Key, string(e.Data))
		return err
	}); err != nil {
		panic(err)
	}
}
