package forward

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/url"
	"slices"

	"golang.org/x/net/html"
)

// withLinks lists the attributes of HTML elements that are URLs.
var withLinks = map[string][]string{
	"a":          {"href"},
	"applet":     {"codebase"},
	"area":       {"href"},
	"audio":      {"src"},
	"base":       {"href"},
	"blockquote": {"cite"},
	"body":       {"background"},
	"button":     {"formaction"},
	"command":    {"icon"},
	"del":        {"cite"},
	"embed":      {"src"},
	"form":       {"action"},
	"frame":      {"longdesc", "src"},
	"head":       {"profile"},
	"html":       {"manifest"},
	"iframe":     {"longdesc", "src"},
	"img":        {"longdesc", "src", "usemap"},
	"input":      {"src", "usemap", "formaction"},
	"ins":        {"cite"},
	"link":       {"href"},
	"object":     {"classid", "codebase", "data", "usemap"},
	"q":          {"cite"},
	"script":     {"src"},
	"source":     {"src"},
	"video":      {"poster", "src"},
}

// longestToken is how many bytes of a page are read at once: of a longer script or text nothing can be said, and
// the rest of the page passes through as it is.
const longestToken = 1 << 20

// A page is the body of an HTML page whose links are changed while it is read.
type page struct {
	from   io.ReadCloser
	packed bool
	link   func(*url.URL) string

	plain  io.Reader       // from, unpacked; nil before the first read
	tokens *html.Tokenizer // reads plain
	ready  bytes.Buffer    // the next bytes
	after  io.Reader       // what follows ready as it is; nil while there are tokens
}

func newPage(from io.ReadCloser, packed bool, link func(*url.URL) string) *page {
	return &page{from: from, packed: packed, link: link}
}

// Close implements [io.Closer].
func (p *page) Close() error { return p.from.Close() }

// Read implements [io.Reader].
func (p *page) Read(b []byte) (int, error) {
	if p.plain == nil {
		p.plain = p.from
		if p.packed {
			unpacked, err := gzip.NewReader(p.from)
			if err != nil {
				return 0, err
			}
			p.plain = unpacked
		}
		p.tokens = html.NewTokenizer(p.plain)
		p.tokens.SetMaxBuf(longestToken)
	}
	for p.ready.Len() == 0 {
		if p.after != nil {
			return p.after.Read(b)
		}
		p.next()
	}
	return p.ready.Read(b)
}

// next makes the next token ready.
func (p *page) next() {
	switch p.tokens.Next() {
	case html.ErrorToken:
		p.ready.Write(p.tokens.Raw()) // of a page that ends within a tag, or the beginning of a long token
		err := p.tokens.Err()
		if p.after = (failing{err}); errors.Is(err, html.ErrBufferExceeded) {
			p.ready.Write(p.tokens.Buffered())
			p.after = p.plain
		}
	case html.StartTagToken, html.SelfClosingTagToken:
		raw := bytes.Clone(p.tokens.Raw()) // Token changes it
		if token := p.tokens.Token(); p.change(&token) {
			p.ready.WriteString(token.String())
			return
		}
		p.ready.Write(raw)
	default:
		p.ready.Write(p.tokens.Raw())
	}
}

// change changes the links of an element, and reports whether there are any.
func (p *page) change(element *html.Token) bool {
	names, changed := withLinks[element.Data], false
	for i := range element.Attr {
		a := &element.Attr[i]
		if !slices.Contains(names, a.Key) {
			continue
		}
		if u, err := url.Parse(a.Val); err == nil {
			a.Val, changed = p.link(u), true
		}
	}
	return changed
}

// A failing reader has nothing but an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
