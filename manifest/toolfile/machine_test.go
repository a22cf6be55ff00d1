package toolfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// anELF returns a program of one segment that takes 100 bytes of the file.
func anELF(t *testing.T, change func(*elf.Header64)) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Phoff: 64, Phentsize: 56, Phnum: 1}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	change(&h)
	var b bytes.Buffer
	segment := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 1 << 20, Filesz: 100}
	for _, part := range []any{h, segment} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// SPEC A5: a program that this machine does not run is pointed out.
func TestA5ProgramsOfAnotherMachine(t *testing.T) {
	const whole = 1<<20 + 100
	good := anELF(t, func(*elf.Header64) {})
	for name, c := range map[string]struct {
		system, head string
		size         int64
		want         string // a part; "" for no warning
	}{
		"of this machine":    {"linux/amd64", good, whole, ""},
		"of an unknown one":  {"linux/sparc64", good, whole, ""},
		"32 bits":            {"linux/amd64", anELF(t, func(h *elf.Header64) { h.Machine = uint16(elf.EM_386) }), whole, ""},
		"a script":           {"linux/amd64", "#!/bin/sh\n", 10, ""},
		"an archive":         {"linux/amd64", "PK\x03\x04", 4, ""},
		"another":            {"linux/arm64", good, whole, "is a program for X86_64, and this machine is linux/arm64"},
		"another system":     {"darwin/arm64", good, whole, "is a program for Linux or BSD, and this machine is darwin/arm64"},
		"macOS":              {"linux/amd64", "\xcf\xfa\xed\xfe", 4, "is a program for macOS"},
		"macOS on itself":    {"darwin/arm64", "\xcf\xfa\xed\xfe", 4, ""},
		"Windows":            {"linux/amd64", "MZ\x90\x00", 4, "is a program for Windows"},
		"only magic":         {"linux/amd64", elf.ELFMAG, 4, "header is damaged or not complete"},
		"half a header":      {"linux/amd64", good[:40], 40, "header is damaged or not complete"},
		"a class of its own": {"linux/amd64", strings.Replace(good, "\x02", "\x07", 1), whole, "header is damaged"},
		"no order":           {"linux/amd64", good[:5] + "\x07" + good[6:], whole, "header is damaged"},
		"no segments":        {"linux/amd64", good[:64], 64, ""}, // within the page that is loaded
		"an object file":     {"linux/amd64", anELF(t, func(h *elf.Header64) { h.Type = uint16(elf.ET_REL) }), whole, "not a program (ET_REL)"},
		"torn":               {"linux/amd64", good, 1 << 19, "describes at least 1048676 bytes, and it has 524288"},
		"torn segments":      {"linux/amd64", anELF(t, func(h *elf.Header64) { h.Phoff = ^uint64(0) }), whole, "describes at least"},
	} {
		t.Run(name, func(t *testing.T) {
			if emulated(runtime.GOOS, []byte(c.head)) {
				t.Skip("this machine has an emulator for such files")
			}
			goos, goarch, _ := strings.Cut(c.system, "/")
			err := foreignTo(goos, goarch, []byte(c.head), c.size)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// SPEC A5: the programs of this machine have no warning, static or not.
func TestA5ProgramsOfThisMachine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{self, "sh", "true", "go"} {
		file, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		h, err := readHead(file, file)
		if err != nil || h.foreign != nil {
			t.Errorf("%s: %v, %v", file, h.foreign, err)
		}
	}
}
