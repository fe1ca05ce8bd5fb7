package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// damages has ways in which a file can be damaged.
var damages = map[string]func(t *testing.T, file string){
	"empty":     func(t *testing.T, file string) { put(t, file, "") },
	"truncated": func(t *testing.T, file string) { put(t, file, `{"name": "te`) },
	"type": func(t *testing.T, file string) {
		put(t, file, `{"process": "x", "pid": "x", "nodeName": 1, "server": 1}`)
	},
	"large": func(t *testing.T, file string) { put(t, file, `{"name": "`+strings.Repeat("a", mostState)+`"}`) },
	"null":  func(t *testing.T, file string) { put(t, file, "null\n") },
	"directory": func(t *testing.T, file string) {
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"pipe": func(t *testing.T, file string) {
		if err := unix.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
	},
}

// put makes a file with its directory.
func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hold makes a file with the process ID of the test, and holds its lock until the test ends.
func hold(t *testing.T, file string) {
	t.Helper()
	put(t, file, fmt.Sprintln(os.Getpid()))
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// eachDamage calls test for each kind of damage, with a profile that has a run directory, and this process.
func eachDamage(t *testing.T, test func(t *testing.T, p Profile, self Process, damage func(t *testing.T, file string))) {
	t.Helper()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := profile(t)
			if err := p.MakeRunDir(); err != nil {
				t.Fatal(err)
			}
			test(t, p, self, damage)
		})
	}
}

func TestDamagedInstanceIsRecovered(t *testing.T) {
	eachDamage(t, func(t *testing.T, p Profile, self Process, damage func(t *testing.T, file string)) {
		put(t, filepath.Join(p.DataDir, "cluster.json"), `{"simulatedNodes": 1}`)
		damage(t, p.instanceFile())
		i, running, err := p.Instance()
		if err != nil || running || !i.Exists() || !strings.HasPrefix(i.Damage, p.instanceFile()+" is ") {
			t.Errorf("Instance of a cluster that does not run = %+v, %v, %v, want the damage", i, running, err)
		}
		hold(t, filepath.Join(p.DataDir, "store", "lock"))
		i, running, err = p.Instance()
		if err != nil || !running || i.Process != self || i.DataDir != p.DataDir || i.Name != p.Name || !i.Simulated {
			t.Errorf("Instance of a cluster that runs = %+v, %v, %v, want this process", i, running, err)
		}
		if err := p.Save(Instance{Name: p.Name, Process: self}); err != nil {
			t.Fatal(err)
		}
		if i, running, err := p.Instance(); err != nil || !running || i.Damage != "" {
			t.Errorf("Instance after Save = %+v, %v, %v", i, running, err)
		}
	})
}

func TestStateFilesWithoutProcessAreDamaged(t *testing.T) {
	p := profile(t)
	put(t, filepath.Join(p.DataDir, "cluster.json"), `{"pods": "10.1.0.0/16"}`)
	hold(t, filepath.Join(p.DataDir, "store", "lock"))
	hold(t, filepath.Join(p.RuntimeState(), "lock"))
	put(t, p.instanceFile(), "{}")
	put(t, p.runtimeFile(), "{}")
	if i, running, err := p.Instance(); err != nil || !running || !strings.HasSuffix(i.Damage, "instance.json is damaged: it names no process") || i.Runtime.PID != os.Getpid() {
		t.Errorf("Instance = %+v, %v, %v, want this process twice", i, running, err)
	}
}

func TestUnrecordedProcessIsNamed(t *testing.T) {
	p := profile(t)
	if err := p.Unrecorded(); err != nil {
		t.Errorf("Unrecorded without data = %v", err)
	}
	hold(t, filepath.Join(p.DataDir, "store", "lock"))
	if err := p.Unrecorded(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("`kill %d`", os.Getpid())) || !strings.Contains(err.Error(), p.instanceFile()+" does not exist") {
		t.Errorf("Unrecorded = %v, want the process and the file", err)
	}
	self, err := ProcessOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	other := p.called("other")
	if err := other.Save(Instance{Name: other.Name, Process: self, DataDir: p.DataDir}); err != nil {
		t.Fatal(err)
	}
	if err := p.Unrecorded(); err != nil {
		t.Errorf("Unrecorded with a process of another cluster = %v", err)
	}
}

func TestDamagedInstanceWithoutProcessID(t *testing.T) {
	p := profile(t)
	if err := p.MakeRunDir(); err != nil {
		t.Fatal(err)
	}
	put(t, p.instanceFile(), "")
	lock := filepath.Join(p.DataDir, "store", "lock")
	hold(t, lock)
	if err := os.Truncate(lock, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Instance(); err == nil || !strings.Contains(err.Error(), p.instanceFile()+" is empty") || !strings.Contains(err.Error(), "`fuser "+lock+"`") {
		t.Errorf("Instance = %v, want the file and how to find the process", err)
	}
}

// TestLockOfEndedProcessIsNotTaken looks for the owner of a lock while another process, which has not written its process ID yet,
// takes the lock.
func TestLockOfEndedProcessIsNotTaken(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(t.TempDir(), "lock")
	hold(t, lock)
	put(t, lock, fmt.Sprintln(ended.Process.Pid))
	if owner, err := lockOwner(lock); err != nil || owner != (Process{}) {
		t.Errorf("the owner is %v, %v; want none: looking at the lock would fail", owner, err)
	}
}

func TestDamagedInstanceIsFoundByRecord(t *testing.T) {
	dir := t.TempDir()
	p := Profile{Name: "test", DataDir: filepath.Join(dir, "elsewhere"), RunDir: filepath.Join(dir, "run", "test"), Default: filepath.Join(dir, "default", "test")}
	if err := p.Record(); err != nil {
		t.Fatal(err)
	}
	hold(t, filepath.Join(p.DataDir, "store", "lock"))
	put(t, p.instanceFile(), "")
	byName := p
	byName.DataDir = p.Default
	if i, running, err := byName.Instance(); err != nil || !running || i.DataDir != p.DataDir {
		t.Errorf("Instance = %+v, %v, %v, want the cluster in %s", i, running, err, p.DataDir)
	}
	if all, err := byName.Clusters(); err != nil || len(all) != 1 || !all[0].Running || all[0].DataDir != p.DataDir {
		t.Errorf("Clusters = %+v, %v, want one that runs", all, err)
	}
}

func TestDamagedInstanceOfMember(t *testing.T) {
	p := profile(t)
	if err := p.KeepMember(Member{Settings: Settings{NodeName: "boat"}}); err != nil {
		t.Fatal(err)
	}
	put(t, p.instanceFile(), "")
	if _, _, err := p.Instance(); err == nil || !strings.Contains(err.Error(), "`sampan agent` of node boat") || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("Instance = %v, want what to do", err)
	}
}

func TestDamagedRuntimeIsRecovered(t *testing.T) {
	eachDamage(t, func(t *testing.T, p Profile, self Process, damage func(t *testing.T, file string)) {
		put(t, filepath.Join(p.DataDir, "cluster.json"), `{"pods": "10.1.0.0/16", "services": "10.2.0.0/16"}`)
		program := filepath.Join(p.DataDir, "bin", "sampan-runtime")
		put(t, program, "")
		damage(t, p.runtimeFile())
		want := Runtime{Program: program, DataDir: p.DataDir, PodNetwork: "10.1.0.0/16", ServiceNetwork: "10.2.0.0/16"}
		if i, _, err := p.Instance(); err != nil || i.Runtime != want || !i.Exists() {
			t.Errorf("Runtime that has ended = %+v, %v, want %+v", i.Runtime, err, want)
		}
		hold(t, filepath.Join(p.RuntimeState(), "lock"))
		want.Process = self
		if i, _, err := p.Instance(); err != nil || i.Runtime != want || i.Damage != "" {
			t.Errorf("Runtime that runs = %+v, %v, want %+v", i.Runtime, err, want)
		}
		if err := p.SaveRuntime(want); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDamagedFilesSayWhatToDo(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := profile(t)
			if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
				t.Fatal(err)
			}
			damage(t, p.settingsFile())
			if _, err := p.Settle(Settings{}, nil); err == nil || !strings.Contains(err.Error(), p.settingsFile()+" is ") || !strings.Contains(err.Error(), "restore the file") || !strings.Contains(err.Error(), "`sampan down --purge --name=test --data-dir="+p.DataDir+"`") {
				t.Errorf("Settle = %v, want the file and what to do", err)
			}
			damage(t, p.memberFile())
			if _, _, err := p.Member(); err == nil || !strings.Contains(err.Error(), p.memberFile()+" is ") || !strings.Contains(err.Error(), "`sampan join`") {
				t.Errorf("Member = %v, want the file and what to do", err)
			}
		})
	}
}

func TestDamagedStarterFile(t *testing.T) {
	p := profile(t)
	put(t, p.starterFile(1<<30), "") // no process has such an ID
	if all, err := p.Starters(); err != nil || len(all) != 0 {
		t.Errorf("Starters = %v, %v, want none", all, err)
	}
	put(t, p.starterFile(os.Getpid()), "")
	if _, err := p.Starters(); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("Starters = %v, want what to do", err)
	}
}

func TestDeniedNamesTheOwner(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chown(dir, os.Getuid(), -1); err != nil {
		t.Fatal(err)
	}
	err := denied(filepath.Join(dir, "none", "cluster.json"), os.ErrPermission)
	if want := fmt.Sprintf("%s belongs to the user with ID %d", dir, os.Getuid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("denied = %v, want %q in it", err, want)
	}
}

// TestRunningClusterIsFoundWithoutItsRunDir has the run directory of a user be another one, or removed, while the cluster runs.
func TestRunningClusterIsFoundWithoutItsRunDir(t *testing.T) {
	root := t.TempDir()
	p := Profile{Name: "test", DataDir: filepath.Join(root, "data", "test"), RunDir: filepath.Join(root, "run", "test"), Default: filepath.Join(root, "data", "test")}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(p.DataDir, "cluster.json"), `{}`)
	i := Instance{Name: "test", Process: self, Simulated: true, DataDir: p.DataDir, Server: "https://127.0.0.1:6443", ReadyAfter: 1}
	if err := p.Save(i); err != nil {
		t.Fatal(err)
	}
	elsewhere := p
	elsewhere.RunDir = filepath.Join(root, "other", "test")
	if _, running, err := elsewhere.Instance(); running || err != nil {
		t.Errorf("a process without the lock: %v, %v", running, err)
	}
	hold(t, filepath.Join(p.DataDir, "store", "lock"))
	if got, running, err := elsewhere.Instance(); !running || err != nil || got.Server != i.Server {
		t.Errorf("with another run directory: %+v, %v, %v", got, running, err)
	}
	all, err := elsewhere.Clusters()
	if err != nil || len(all) != 1 || !all[0].Running || all[0].Instance.Process != self {
		t.Errorf("Clusters = %+v, %v", all, err)
	}
	if err := os.RemoveAll(p.RunDir); err != nil {
		t.Fatal(err)
	}
	if _, running, err := p.Instance(); !running || err != nil {
		t.Errorf("without the run directory: %v, %v", running, err)
	}
	renamed := p.called("renamed")
	renamed.DataDir = p.DataDir
	if _, running, _ := renamed.Instance(); running {
		t.Error("a cluster of another name in the directory runs")
	}
}
