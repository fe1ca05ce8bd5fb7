package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Sources is where the stand-ins are made from.
type Sources struct {
	Bin    string   // directory of the programs: agnhost, busybox, sh, bash, init, pause, nonewprivs, sample-apiserver, sample-device-plugin, etcd
	Debian string   // tar file of a Debian system that has the tools that the suite calls in agnhost
	Images string   // test/images of upstream's module
	Names  []string // of the images, as the suite lists them
	CSI    string   // directory of the CSI driver and its sidecars; empty if they were not built
}

// private is the registry of images that a cluster must not get without credentials.
const private = "gcr.io/k8s-authenticated-test/"

// named returns the images of a suite whose last path segment is one of some words.
func named(names []string, words ...string) (found []string) {
	for _, n := range names {
		last := n[strings.LastIndexByte(n, '/')+1:]
		word, _, _ := strings.Cut(last, ":")
		if slices.Contains(words, word) && !strings.HasPrefix(n, private) {
			found = append(found, n)
		}
	}
	return found
}

// A standIn is an image: the names that it stands in for, and what it has.
type standIn struct {
	words  []string
	config Config
	layers []string
}

func standIns() []standIn {
	run := func(command ...string) Config { return Config{Entrypoint: command} }
	serve := func(dir string) Config {
		return Config{Cmd: []string{"/bin/init", "/bin/httpd", "-f", "-p", "80", "-h", dir}}
	}
	pages := Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}}
	return []standIn{
		{[]string{"pause"}, run("/pause"), []string{"pause"}},
		{[]string{"busybox"}, Config{Cmd: []string{"sh"}}, []string{"busybox"}},
		{[]string{"nonroot"}, Config{User: "1234", Cmd: []string{"sh"}}, []string{"busybox"}},
		{[]string{"nginx"}, serve("/usr/share/nginx/html"), []string{"busybox", "web"}},
		{[]string{"httpd"}, serve("/usr/local/apache2/htdocs"), []string{"busybox", "web"}},
		{[]string{"agnhost"}, Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, []string{"debian", "agnhost"}},
		{[]string{"nautilus"}, pages, []string{"debian", "agnhost", "nautilus"}},
		{[]string{"kitten"}, pages, []string{"debian", "agnhost", "kitten"}},
		{[]string{"glibc-dns-testing", "jessie-dnsutils"}, Config{Cmd: []string{"bash"}}, []string{"debian"}},
		{[]string{"sample-apiserver"}, run("/sample-apiserver"), []string{"busybox", "sample-apiserver"}},
		{[]string{"sample-device-plugin"}, run("/sampledeviceplugin"), []string{"busybox", "sample-device-plugin"}},
		{[]string{"nonewprivs"}, Config{Cmd: []string{"nnp"}}, []string{"busybox", "nonewprivs"}},
		{[]string{"etcd"}, Config{Cmd: []string{"/usr/local/bin/etcd"}}, []string{"busybox", "etcd"}},
	}
}

// Write makes the stand-ins of the images that the sources name, in an empty or missing directory, and returns their names.
func Write(s Sources, dir string) (names []string, err error) {
	l, err := NewLayout(dir)
	if err != nil {
		return nil, err
	}
	contents, made := s.layers(), map[string]Layer{}
	for _, image := range slices.Concat(standIns(), s.csiStandIns()) {
		found := named(s.Names, image.words...)
		if len(found) == 0 {
			continue
		}
		var layers []Layer
		for _, name := range image.layers {
			layer, ok := made[name]
			if !ok {
				if layer, err = l.Layer(func(t *tar.Writer) error { return contents[name](files{t}) }); err != nil {
					return nil, err
				}
				made[name] = layer
			}
			layers = append(layers, layer)
		}
		image.config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		if err := l.Image(found, image.config, layers...); err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return names, l.Close()
}

const (
	users = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n" +
		"www-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n"
	groups = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnobody:x:65534:\n"

	// The suite expects these in agnhost.
	moreUsers  = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"
	moreGroups = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
)

// layers returns how each layer is written.
func (s Sources) layers() map[string]func(files) error {
	bin := func(name string) string { return filepath.Join(s.Bin, name) }
	program := func(path, name string, mode int64) func(files) error {
		return func(f files) error { return f.copy(path, mode, bin(name)) }
	}
	all := map[string]func(files) error{
		"pause":                program("pause", "pause", 0o755),
		"busybox":              s.busybox,
		"debian":               s.debian,
		"sample-apiserver":     program("sample-apiserver", "sample-apiserver", 0o755),
		"sample-device-plugin": program("sampledeviceplugin", "sample-device-plugin", 0o755),
		"nonewprivs":           program("usr/local/bin/nnp", "nonewprivs", 0o6755),
		"etcd":                 program("usr/local/bin/etcd", "etcd", 0o755),
		"web": func(f files) error {
			return errors.Join(
				f.dirs("usr/local/apache2", "usr/local/apache2/htdocs", "usr/share", "usr/share/nginx", "usr/share/nginx/html"),
				f.copy("bin/init", 0o755, bin("init")),
				f.text("usr/local/apache2/htdocs/index.html", "<html><body><h1>It works!</h1></body></html>\n"),
				f.text("usr/share/nginx/html/index.html", "<html><head><title>Welcome to nginx!</title></head></html>\n"),
			)
		},
		"agnhost": func(f files) error {
			return errors.Join(
				f.dirs("uploads"),
				f.copy("agnhost", 0o755, bin("agnhost")), f.link("agnhost-2", "agnhost"), f.link("usr/local/bin/iperf", "/usr/bin/iperf"),
				f.copy("localhost.crt", 0o644, filepath.Join(s.Images, "agnhost/porter/localhost.crt")),
				f.copy("localhost.key", 0o644, filepath.Join(s.Images, "agnhost/porter/localhost.key")),
			)
		},
		"nautilus": s.page("nautilus"),
		"kitten": func(f files) error { // the suite mounts it, and expects upstream's distribution
			return errors.Join(s.page("kitten")(f), f.text("etc/os-release", "NAME=\"Alpine Linux\"\nID=alpine\n"))
		},
	}
	for _, p := range append(csiSidecars(), csiDriver) {
		all[p] = func(f files) error { return f.copy(p, 0o755, filepath.Join(s.CSI, p)) }
	}
	all[hostPathPlugin] = func(f files) error {
		const script = "#!/bin/sh\nexec /" + csiDriver + " driver \"$@\"\n"
		return f.put(hostPathPlugin, 0o755, int64(len(script)), strings.NewReader(script))
	}
	return all
}

func (s Sources) page(name string) func(files) error {
	return func(f files) error {
		html := filepath.Join(s.Images, name, "html")
		return errors.Join(
			f.copy("data.json", 0o644, filepath.Join(html, "data.json")),
			f.copy(name+".jpg", 0o644, filepath.Join(html, name+".jpg")),
		)
	}
}

// busybox has Debian's busybox with a link for each of its programs, and as sh the program of this name in standins.
func (s Sources) busybox(f files) error {
	busybox := filepath.Join(s.Bin, "busybox")
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	errs := []error{
		f.dirs("bin", "dev", "etc", "home", "lib", "lib64", "mnt", "opt", "proc", "root", "sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin",
			"usr/local", "usr/local/bin", "var", "var/run", "var/tmp"),
		f.text("etc/passwd", users), f.text("etc/group", groups), f.text("etc/nsswitch.conf", "hosts: files dns\n"),
		f.copy("bin/busybox", 0o755, busybox), f.copy("bin/bash", 0o755, filepath.Join(s.Bin, "bash")), f.copy("bin/sh", 0o755, filepath.Join(s.Bin, "sh")),
	}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" && name != "sh" {
			errs = append(errs, f.link("bin/"+name, "busybox"))
		}
	}
	return errors.Join(errs...)
}

// debian has the Debian system, with the users that the suite expects.
func (s Sources) debian(f files) error {
	archive, err := os.Open(s.Debian)
	if err != nil {
		return err
	}
	defer archive.Close()
	more := map[string]string{"etc/passwd": moreUsers, "etc/group": moreGroups}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Name = strings.TrimPrefix(h.Name, "./")
		if h.Name == "" { // the root directory
			continue
		}
		add := more[h.Name]
		h.Size += int64(len(add))
		h.Linkname, h.Format = strings.TrimPrefix(h.Linkname, "./"), tar.FormatPAX
		if err := f.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(f, io.MultiReader(r, strings.NewReader(add))); err != nil {
			return err
		}
	}
}
