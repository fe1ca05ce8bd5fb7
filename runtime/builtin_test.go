package runtime

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/runtime/image"
	"github.com/sampan-io/sampan/runtime/image/demo"
)

func TestBuiltInImagesAreImportedOnce(t *testing.T) {
	nstest.NeedRoot(t)
	program, err := os.ReadFile("/proc/self/exe") // any will do
	if err != nil {
		t.Fatal(err)
	}
	images, err := demo.New(program)
	if err != nil {
		t.Fatal(err)
	}
	store, err := image.Open(image.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	b := Builtin{IDs: images.IDs, Archive: func() io.Reader { opened++; return images.Archive() }}
	for range 2 {
		if err := importOnce(context.Background(), store, b); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 1 {
		t.Errorf("the archive was read %d times, want once", opened)
	}
	for name, id := range images.IDs {
		img, err := store.Get(name)
		if err != nil || img.ID != id {
			t.Errorf("%s is %v, %v; want %s", name, img.ID, err, id)
		}
	}
	if len(images.IDs) != len(demo.Versions()) {
		t.Errorf("images %v, want one for each of %v", images.IDs, demo.Versions())
	}
}
