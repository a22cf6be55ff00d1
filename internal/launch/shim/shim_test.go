package shim

import (
	"reflect"
	"testing"
)

func aPlan() Plan {
	return Plan{
		Base: "/tmp", Hostname: "sandbox", Drop: true, ID: 65532, Filter: "\x00\x01",
		Entries:  []Entry{{Kind: Folder, Path: "/a"}, {Bind, "/b", "/c", Identity{1, 2}}},
		Landlock: Landlock{"attr", []Rule{{"/", 7}}},
		Limits:   []Rlimit{{4, 0}},
		Path:     "/bin/sh", Dir: "/tmp", Argv: []string{"sh", ""}, Env: []string{"A=b"},
	}
}

// TestPlan: a stage reads what was written, and nothing else.
func TestPlan(t *testing.T) {
	want := aPlan()
	text := want.Encode()
	if n := size([4]byte(text)); n != len(text)-4 {
		t.Errorf("it has %d bytes; it says %d", len(text)-4, n)
	}
	if got, ok := decode(text[4:]); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("it reads %+v, %t; want %+v", got, ok, want)
	}
	for n := range len(text) - 4 {
		if _, ok := decode(text[4 : 4+n]); ok {
			t.Errorf("it reads the first %d bytes", n)
		}
	}
	if _, ok := decode(append(text[4:], 0)); ok {
		t.Error("it reads one byte more")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(aPlan().Encode()[4:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, ok := decode(data); ok {
			if again, ok := decode(p.Encode()[4:]); !ok || !reflect.DeepEqual(again, p) {
				t.Errorf("%+v becomes %+v", p, again)
			}
		}
	})
}
