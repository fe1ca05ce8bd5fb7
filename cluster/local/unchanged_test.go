package local

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestUnchangedFilesAreNotWritten finds out by their identity which files were replaced. A directory that is away makes
// writing fail for root, too.
func TestUnchangedFilesAreNotWritten(t *testing.T) {
	p := profile(t)
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := Settings{NodeName: "boat", APIPort: 7000, EventTTL: Duration(90 * time.Minute)}
	own := Credentials{Server: "https://127.0.0.1:1", CA: []byte("ca"), Cert: []byte("c"), Key: []byte("k")}
	if err := p.Keep(settings); err != nil {
		t.Fatal(err)
	}
	if err := p.SaveKubeconfig(own); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if _, err := p.Merge(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(config, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(p.settingsFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Keep(settings); err != nil {
		t.Errorf("Keep of what is saved already: %v", err)
	}
	if now, err := os.Stat(p.settingsFile()); err != nil || !os.SameFile(was, now) {
		t.Errorf("Keep of what is saved already wrote the file: %v", err)
	}
	settings.LastPort = 1
	if err := os.Rename(p.DataDir, p.DataDir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := p.Keep(settings); err == nil {
		t.Error("Keep of other settings wrote nothing")
	}
	if err := os.Rename(p.DataDir+"-away", p.DataDir); err != nil {
		t.Fatal(err)
	}
	if saved, found, err := p.savedSettings(); err != nil || !found || saved.APIPort != 7000 || saved.LastPort != 0 || saved.EventTTL != Duration(90*time.Minute) {
		t.Errorf("after a Keep that failed the settings are %+v, %v", saved, err)
	}
	if _, err := p.Merge(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(config); err != nil || !after.ModTime().Equal(time.Unix(1, 0)) || after.Size() != before.Size() {
		t.Errorf("Merge of what is there already wrote the file: %+v, %v", after, err)
	}
	got, ok := p.SavedCredentials()
	if !ok || got.Server != own.Server || string(got.Key) != "k" {
		t.Errorf("SavedCredentials = %+v, %v", got, ok)
	}
	if err := os.Truncate(p.Kubeconfig(), 20); err != nil {
		t.Fatal(err)
	}
	if got, ok := p.SavedCredentials(); ok {
		t.Errorf("SavedCredentials of half a file = %+v", got)
	}
}

func TestEventTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]bool{0: true, time.Second: true, time.Hour: true, time.Millisecond: false, -time.Hour: false} {
		if err := (Settings{EventTTL: Duration(ttl)}).check(); (err == nil) != want {
			t.Errorf("an event TTL of %v: %v", ttl, err)
		}
	}
	data, err := json.Marshal(Settings{EventTTL: DefaultEventTTL})
	var s Settings
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.EventTTL != DefaultEventTTL {
		t.Errorf("%s is read as %v, %v", data, s.EventTTL, err)
	}
}

// Several processes may write the state of one cluster at once, such as two `sampan kubeconfig --merge`.
func TestReplaceByManyWriters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			data := bytes.Repeat([]byte{'a' + byte(i)}, 4096)
			for range 8 {
				if err := replace(file, data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	data, err := os.ReadFile(file)
	if err != nil || len(data) != 4096 || bytes.Count(data, data[:1]) != 4096 {
		t.Errorf("the file has %d bytes of several writers, %v", len(data), err)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Errorf("left %v, %v", all, err)
	}
}
