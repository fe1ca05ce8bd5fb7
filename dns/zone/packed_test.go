package zone

import (
	"net/netip"
	"reflect"
	"testing"
	"unique"

	"pgregory.net/rapid"
)

// What is packed is read as what it was.
func TestPackedEndpoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Endpoints{}
		for range rapid.IntRange(0, 3).Draw(t, "ports") {
			e.ports = append(e.ports, port{
				unique.Make(rapid.StringN(1, 62, 62).Draw(t, "name")), rapid.SampledFrom(protocols[:]).Draw(t, "protocol"), rapid.Uint16().Draw(t, "number"),
			})
		}
		for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
			n := rapid.SampledFrom([]int{4, 16}).Draw(t, "family")
			a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "address"))
			e.all = append(e.all, endpoint{rapid.StringN(0, 63, 63).Draw(t, "host"), a, rapid.Bool().Draw(t, "ready")})
		}
		before := []byte("web")
		packed := e.AppendTo(before)
		if got := ReadEndpoints(string(packed[len(before):])); !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v became %+v", e, got)
		}
	})
}

// FuzzReadEndpoints parses arbitrary bytes, and ends.
func FuzzReadEndpoints(f *testing.F) {
	f.Add("\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f") // a name that is longer than what there is
	f.Add("\x01\x04http\x00\x00\x50\x00\x01\x04\x0a\x00\x00\x01")
	f.Fuzz(func(_ *testing.T, packed string) { ReadEndpoints(packed) })
}

// An address that several Services have gets the names of all, sorted, whatever the order of
// updates.
func TestHoldersOfAnAddress(t *testing.T) {
	z, err := New(Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("10.0.0.1")
	put := func(name string) {
		s := &Service{name: name + ".shop"}
		s.add(a)
		z.Put("shop", name, s, nil)
	}
	holders := func() (names []string) {
		z.holders(a, func(s *Service) { names = append(names, s.name) })
		return names
	}
	steps := []struct {
		do   func()
		want []string
	}{
		{func() {}, nil},
		{func() { put("b") }, []string{"b.shop"}},
		{func() { put("b") }, []string{"b.shop"}},
		{func() { put("c") }, []string{"b.shop", "c.shop"}},
		{func() { put("a") }, []string{"a.shop", "b.shop", "c.shop"}},
		{func() { put("b") }, []string{"a.shop", "b.shop", "c.shop"}},
		{func() { z.Remove("shop", "a") }, []string{"b.shop", "c.shop"}},
		{func() { z.Remove("shop", "c") }, []string{"b.shop"}},
		{func() { z.Remove("shop", "b") }, nil},
	}
	for i, step := range steps {
		step.do()
		if got := holders(); !reflect.DeepEqual(got, step.want) {
			t.Errorf("after step %d %v have the address, want %v", i, got, step.want)
		}
	}
	if len(z.reverse)+len(z.shared)+len(z.namespaces) > 0 {
		t.Errorf("left are %v, %v and %v", z.reverse, z.shared, z.namespaces)
	}
}
