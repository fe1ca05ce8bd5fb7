package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

const usage = `usage: demo [COMMAND]

  serve                 serve HTTP on $PORT (80): / returns the name and version of the
                        server, also /healthz and /env; keep serving for $DRAIN_SECONDS
                        (1) after SIGTERM; answer UDP on $UDP_PORT (none) like /
  build                 print progress for two seconds, then end
  sleep [SECONDS]       do nothing, forever if no time is given
  exit [CODE [WORD…]]   print words, if there are any, and end with this exit code (0)
  echo WORD…            print words to standard output
  print WORD…           the same, without a newline at the end
  complain WORD…        print words to standard error
  write FILE WORD…      put words into a file
  fill FILE             write to a file until the disk is full
  read FILE…            print files
  cat                   copy standard input to standard output
  terminal              print the size of the terminal, if there is one, and again after
                        each line of standard input
  mirror PORT           serve TCP on this port of 127.0.0.1, or of ::1 if it begins with 6:
                        send back what comes, and after its end how many bytes that were
  list DIRECTORY…       print the entries of directories
  id                    print user, groups, capabilities, directory and hostname
  get URL               print the response of a web server
  api PATH              print the response of the cluster's API server to this pod
  resolve NAME          print the addresses of a name
  memory MIB            allocate memory, and keep it
  burn                  use all of one processor
  flood BYTES           print lines of the alphabet
  spawn                 start a child that sleeps, and exit
  unshare               try a call that the default seccomp profile forbids
`

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	verbs := map[string]func([]string) error{
		"serve": serve, "build": build, "sleep": sleep, "echo": echo, "print": printWords, "complain": complain, "write": write, "fill": fill, "read": read,
		"list": list, "id": identity, "get": get, "api": api, "resolve": resolve, "memory": memory, "burn": burn, "flood": flood, "spawn": spawn,
		"unshare": unshare, "cat": cat, "terminal": terminal, "mirror": mirror,
	}
	if args[0] == "exit" {
		code, err := strconv.Atoi(strings.Join(slices.Concat(args[1:], []string{"0"})[:1], ""))
		if err != nil {
			fmt.Fprintln(os.Stderr, "demo: exit:", err)
			return 2
		}
		if len(args) > 2 {
			fmt.Println(strings.Join(args[2:], " "))
		}
		return code
	}
	verb, ok := verbs[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "demo: unknown command %q\n%s", args[0], usage)
		return 2
	}
	if err := verb(args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// who is the line that the server answers with.
func who() string {
	pod, err := os.Hostname()
	if err != nil {
		pod = "unknown"
	}
	if name := os.Getenv("POD_NAME"); name != "" {
		pod = name
	}
	line := "sampan demo " + os.Getenv("DEMO_VERSION") + " pod " + pod
	if node := os.Getenv("NODE_NAME"); node != "" {
		line += " node " + node
	}
	return line
}

func serve([]string) error {
	port := os.Getenv("PORT")
	if port == "" {
		port = "80"
	}
	drain := time.Second
	if s := os.Getenv("DRAIN_SECONDS"); s != "" {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil || seconds < 0 {
			return fmt.Errorf("DRAIN_SECONDS is %q, want a number of seconds", s)
		}
		drain = time.Duration(seconds * float64(time.Second))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, who()) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		env := os.Environ()
		slices.Sort(env)
		_, _ = fmt.Fprintln(w, strings.Join(env, "\n"))
	})
	stop, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	var config net.ListenConfig
	listener, err := config.Listen(stop, "tcp", ":"+port)
	if err != nil {
		return err
	}
	if port := os.Getenv("UDP_PORT"); port != "" {
		packets, err := config.ListenPacket(stop, "udp", ":"+port)
		if err != nil {
			return err
		}
		group := run.NewGroup(stop, 0)
		defer group.Stop()
		defer packets.Close()
		group.Go(func(context.Context) { answer(packets) })
	}
	fmt.Println(who(), "listens on port", port)
	// Close idle connections in time, so that clients connect to another server.
	leaving := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stop.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: leaving, ReadHeaderTimeout: 10 * time.Second}
	// Keep serving for a moment after the signal: proxies may not have removed
	// this endpoint yet.
	answered := make(chan struct{})
	context.AfterFunc(stop, func() {
		fmt.Println(who(), "goes on serving for", drain)
		time.AfterFunc(drain, func() {
			defer close(answered)
			rest, cancel := context.WithTimeout(context.Background(), drain+time.Second)
			defer cancel()
			_ = server.Shutdown(rest)
		})
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-answered
	fmt.Println(who(), "ends")
	return nil
}

// answer responds to UDP packets with the name of this server, until packets is closed.
func answer(packets net.PacketConn) {
	for {
		var b [1]byte
		_, from, err := packets.ReadFrom(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteTo([]byte(who()+"\n"), from)
		}
	}
}

func build([]string) error {
	steps := []string{
		"fetching sources", "resolving dependencies", "compiling store", "compiling server", "compiling controllers",
		"compiling workers", "linking", "testing", "packing", "done",
	}
	for i, step := range steps {
		fmt.Printf("[%d/%d] %s\n", i+1, len(steps), step)
		if i < len(steps)-1 {
			<-time.After(220 * time.Millisecond)
		}
	}
	return nil
}

func sleep(args []string) error {
	stop, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	if len(args) == 0 {
		<-stop.Done()
		return nil
	}
	seconds, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return err
	}
	select {
	case <-stop.Done():
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	}
	return nil
}

func echo(args []string) error {
	_, err := fmt.Println(strings.Join(args, " "))
	return err
}

func printWords(args []string) error {
	_, err := fmt.Print(strings.Join(args, " "))
	return err
}

func complain(args []string) error {
	_, err := fmt.Fprintln(os.Stderr, strings.Join(args, " "))
	return err
}

func write(args []string) error {
	if len(args) == 0 {
		return errors.New("want a file")
	}
	return os.WriteFile(args[0], []byte(strings.Join(args[1:], " ")+"\n"), 0o644)
}

func fill(args []string) error {
	if len(args) != 1 {
		return errors.New("want a file")
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
}

func read(args []string) error {
	for _, name := range args {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(data); err != nil {
			return err
		}
	}
	return nil
}

func list(args []string) error {
	for _, name := range args {
		entries, err := os.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Println(e.Name())
		}
	}
	return nil
}

func identity([]string) error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	slices.Sort(groups)
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Printf("uid %d\ngid %d\ngroups %v\ndirectory %s\nhostname %s\npid %d\n", os.Getuid(), os.Getgid(), groups, dir, host, os.Getpid())
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		for _, key := range []string{"CapEff", "CapBnd", "NoNewPrivs", "Seccomp:"} {
			if strings.HasPrefix(line, key) {
				fmt.Print(line)
			}
		}
	}
	return nil
}

func get(args []string) error {
	if len(args) != 1 {
		return errors.New("want one URL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	return ask(http.DefaultClient, request)
}

// account is where a pod finds its token and the certificate of the cluster.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func api(args []string) error {
	if len(args) != 1 {
		return errors.New("want one path")
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New(account + "ca.crt holds no certificate")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+args[0], nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	return ask(&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, request)
}

// ask prints the answer to a request.
func ask(client *http.Client, request *http.Request) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func resolve(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range args {
		addrs, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(addrs, " "))
	}
	return nil
}

func memory(args []string) error {
	if len(args) != 1 {
		return errors.New("want a number of MiB")
	}
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	fmt.Println("holding", mib, "MiB")
	err = sleep(nil)
	held[0] = 2
	return err
}

func burn([]string) error {
	stop, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	for stop.Err() == nil {
		for range 1_000_000 { //nolint:revive // this is what it is for
		}
	}
	return nil
}

func flood(args []string) error {
	if len(args) != 1 {
		return errors.New("want a number of bytes")
	}
	left, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	const atOnce = 512
	lines := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.\n"), atOnce)
	for left > 0 {
		n, err := os.Stdout.Write(lines[:min(left, len(lines))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

func spawn([]string) error {
	child, err := os.StartProcess("/proc/self/exe", []string{"demo", "sleep"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	return child.Release()
}

func unshare([]string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWUSER); err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	fmt.Println("permitted")
	return nil
}
