package zpages

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// A Component is the subject of the pages.
type Component struct {
	Name             string // such as "apiserver"
	Started          time.Time
	GoVersion        string
	BinaryVersion    string            // MAJOR.MINOR.PATCH
	EmulationVersion string            // MAJOR.MINOR
	Paths            func() []string   // all paths that are served
	Flags            map[string]string // of the command line, with their values
}

const group = "config.k8s.io"

// The versions of the objects; the second one is deprecated.
const (
	version    = "v1beta1"
	deprecated = "v1alpha1"
)

type statusz struct {
	metav1.TypeMeta  `json:",inline"`
	Metadata         metadata    `json:"metadata"`
	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion,omitempty"`
	Paths            []string    `json:"paths"`
}

type flagz struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metadata          `json:"metadata"`
	Flags           map[string]string `json:"flags,omitempty"`
}

type metadata struct {
	Name string `json:"name"`
}

// warning is the beginning of both pages as text, in upstream's words, which tests of clients look for.
const warning = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

// Statusz returns the handler of /statusz.
func (c Component) Statusz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := statusz{
			Metadata: metadata{c.Name}, StartTime: metav1.NewTime(c.Started), UptimeSeconds: max(0, int64(time.Since(c.Started).Seconds())),
			GoVersion: c.GoVersion, BinaryVersion: c.BinaryVersion, EmulationVersion: c.EmulationVersion, Paths: folders(c.Paths()),
		}
		serve(w, r, "Statusz", s.text, func(t metav1.TypeMeta) any {
			s.TypeMeta = t
			return s
		})
	})
}

// Flagz returns the handler of /flagz.
func (c Component) Flagz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := flagz{Metadata: metadata{c.Name}, Flags: c.Flags}
		serve(w, r, "Flagz", f.text, func(t metav1.TypeMeta) any {
			f.TypeMeta = t
			return f
		})
	})
}

func (s *statusz) text() string {
	up := s.UptimeSeconds
	return fmt.Sprintf(warning+"\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
		s.Metadata.Name, "statusz", s.StartTime.Time.Format(time.UnixDate), up/3600, up/60%60, up%60, s.GoVersion, s.BinaryVersion, s.EmulationVersion, strings.Join(s.Paths, " "))
}

func (f *flagz) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, warning, f.Metadata.Name, "flagz")
	for _, name := range slices.Sorted(maps.Keys(f.Flags)) {
		fmt.Fprintf(&b, "%s=%s\n", name, f.Flags[name])
	}
	return b.String()
}

// folders returns the first parts of paths that are for debugging.
func folders(paths []string) []string {
	var out []string
	for _, p := range paths {
		first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		switch first {
		case "", "apis", "api", "openid", "openapi", ".well-known":
		default:
			out = append(out, "/"+first)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// serve answers in the form that the client wants most: text, or an object of the kind.
func serve(w http.ResponseWriter, r *http.Request, kind string, text func() string, object func(metav1.TypeMeta) any) {
	h := w.Header()
	accept := r.Header.Get("Accept")
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if strings.TrimSpace(accept) == "" {
			media, err = "text/plain", nil
		}
		if err != nil {
			continue
		}
		switch {
		case media == "text/plain" || media == "text/*" || media == "*/*":
			h.Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text()))
			return
		case params["g"] != group || params["as"] != kind || params["v"] != version && params["v"] != deprecated:
		case media == "application/json" || media == "application/yaml":
			if params["v"] == deprecated {
				h.Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
			}
			body, err := json.Marshal(object(metav1.TypeMeta{APIVersion: group + "/" + params["v"], Kind: kind}))
			if err == nil && media == "application/yaml" {
				body, err = yaml.JSONToYAML(body)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			h.Set("Content-Type", media)
			_, _ = w.Write(body)
			return
		}
	}
	http.Error(w, fmt.Sprintf("only the following media types are accepted: text/plain, and application/json and application/yaml with the parameters g=%s;v=%s;as=%s", group, version, kind), http.StatusNotAcceptable)
}
