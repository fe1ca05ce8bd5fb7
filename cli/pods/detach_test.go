package pods

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// reads returns each text in a read of its own, and then fails.
type reads struct {
	texts []string
	end   error
}

func (r *reads) Read(p []byte) (int, error) {
	if len(r.texts) == 0 {
		return 0, r.end
	}
	n := copy(p, r.texts[0])
	r.texts[0] = r.texts[0][n:]
	if r.texts[0] == "" {
		r.texts = r.texts[1:]
	}
	return n, nil
}

func TestDetachReader(t *testing.T) {
	const p, q = "\x10", "\x11"
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		keys  string
		texts []string
		end   error
		want  string
		err   error
		left  bool
	}{
		{name: "no keys", texts: []string{"ls\n", "exit\n"}, want: "ls\nexit\n"},
		{name: "keys alone", texts: []string{p + q}, left: true},
		{name: "text around the keys", texts: []string{"a" + p + q + "b", "c"}, want: "a", left: true},
		{name: "keys in two reads", texts: []string{"a" + p, q + "b"}, want: "a", left: true},
		{name: "a byte between", texts: []string{p, "x", q, "\n"}, want: p + "x" + q + "\n"},
		{name: "the other order", texts: []string{q + p + "\n"}, want: q + p + "\n"},
		{name: "the first key twice", texts: []string{p + p + q}, want: p, left: true},
		{name: "the beginning twice", keys: "aab", texts: []string{"aa", "aab"}, want: "aa", left: true},
		{name: "one key", keys: "\x01", texts: []string{"x\x01y"}, want: "x", left: true},
		{name: "the end of the input after the first key", texts: []string{"a" + p}, want: "a" + p},
		{name: "an error after the first key", texts: []string{"a" + p}, end: broken, want: "a" + p, err: broken},
	} {
		if tt.keys == "" {
			tt.keys = p + q
		}
		if tt.end == nil {
			tt.end = io.EOF
		}
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"as it comes": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		} {
			left := false
			var got []byte
			r := &detachReader{in: wrap(&reads{append([]string(nil), tt.texts...), tt.end}), keys: []byte(tt.keys), detach: func() {
				left = true
				if string(got) != tt.want {
					t.Errorf("%s, %s: detached after %q", tt.name, how, got)
				}
			}}
			var err error
			for err == nil {
				var n int
				buf := make([]byte, 3)
				n, err = r.Read(buf)
				got = append(got, buf[:n]...)
			}
			if err == io.EOF { //nolint:errorlint // it is what readers return
				err = nil
			}
			if string(got) != tt.want || left != tt.left || !errors.Is(err, tt.err) {
				t.Errorf("%s, %s: read %q, %v, detached %v, want %q, %v, %v", tt.name, how, got, err, left, tt.want, tt.err, tt.left)
			}
		}
	}
}

// TestDetachReaderPassesOnWhatIsTyped: only the beginning of the keys waits for the next read.
func TestDetachReaderPassesOnWhatIsTyped(t *testing.T) {
	in, typed := io.Pipe()
	go func() { _, _ = typed.Write([]byte("ab\x10")) }()
	r := &detachReader{in: in, keys: []byte("\x10\x11"), detach: func() { t.Error("detached") }}
	buf := make([]byte, 10)
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "ab" {
		t.Errorf("%q, %v, want ab", buf[:n], err)
	}
	if n, err := r.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: %d, %v", n, err)
	}
	_ = typed.Close()
	if rest, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(rest), "\x10") {
		t.Errorf("%q, %v, want the key that was held back", rest, err)
	}
}
