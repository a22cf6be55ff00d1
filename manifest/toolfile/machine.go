package toolfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// machines are the values of e_machine that a kernel runs, by Orla's own GOARCH: those of its
// 32-bit and 64-bit relatives too.
var machines = map[string][]elf.Machine{
	"amd64": {elf.EM_X86_64, elf.EM_386}, "386": {elf.EM_386, elf.EM_X86_64},
	"arm64": {elf.EM_AARCH64, elf.EM_ARM}, "arm": {elf.EM_ARM, elf.EM_AARCH64},
	"riscv64": {elf.EM_RISCV}, "s390x": {elf.EM_S390}, "loong64": {elf.EM_LOONGARCH},
	"ppc64": {elf.EM_PPC64, elf.EM_PPC}, "ppc64le": {elf.EM_PPC64, elf.EM_PPC},
}

// foreignTo returns a warning for a program that a machine does not run: it begins with head
// and has size bytes. A program that only the header describes as one is reported too. The
// result is nil if the machine may run it, and for a file of another kind.
func foreignTo(goos, goarch string, head []byte, size int64) error {
	isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG))
	system := ""
	switch {
	case bytes.HasPrefix(head, []byte("MZ")):
		system = "Windows"
	case goos != "darwin" && len(head) >= 4 && slices.Contains(machO, string(head[:4])):
		system = "macOS"
	case isELF && goos == "darwin":
		system = "Linux or BSD"
	case isELF:
		return foreignELF(goos, goarch, head, uint64(max(0, size)))
	}
	if system == "" || emulated(goos, head) {
		return nil
	}
	return fmt.Errorf("is a program for %s, and this machine is %s/%s: it cannot be run here without an emulator", system, goos, goarch)
}

// foreignELF is foreignTo for an ELF file.
func foreignELF(goos, goarch string, head []byte, size uint64) error {
	h, ok := readELF(head)
	known, runs := machines[goarch]
	switch {
	case !ok:
		return errors.New("cannot be run: its ELF header is damaged or not complete; build or copy it again")
	case h.kind != elf.ET_EXEC && h.kind != elf.ET_DYN:
		return fmt.Errorf("cannot be run: it is an ELF file but not a program (%v)", h.kind)
	case runs && !slices.Contains(known, h.machine) && !emulated(goos, head):
		return fmt.Errorf("is a program for %s, and this machine is %s/%s: it cannot be run here without an emulator",
			strings.TrimPrefix(h.machine.String(), "EM_"), goos, goarch)
	case h.end > roundUp(size, uint64(os.Getpagesize())):
		return fmt.Errorf("cannot be run: its ELF header describes at least %d bytes, and it has %d; build or copy it again", h.end, size)
	}
	return nil
}

// elfHeader is what foreignELF looks at.
type elfHeader struct {
	kind    elf.Type
	machine elf.Machine
	end     uint64 // the last byte that is loaded from the file, as far as that is known
}

// readELF reads the header and those program headers that are in head. It reports false if
// the header is not complete or not one. debug/elf would read the sections as well, which no
// kernel looks at.
func readELF(head []byte) (h elfHeader, ok bool) {
	if len(head) < elf.EI_NIDENT {
		return h, false
	}
	var order binary.ByteOrder
	switch elf.Data(head[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		order = binary.BigEndian
	default:
		return h, false
	}
	var at, each, count uint64
	wide := elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	if wide {
		var x elf.Header64
		if _, err := binary.Decode(head, order, &x); err != nil {
			return h, false
		}
		h.kind, h.machine = elf.Type(x.Type), elf.Machine(x.Machine)
		at, each, count = x.Phoff, uint64(x.Phentsize), uint64(x.Phnum)
	} else {
		var x elf.Header32
		if _, err := binary.Decode(head, order, &x); err != nil || elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS32 {
			return h, false
		}
		h.kind, h.machine = elf.Type(x.Type), elf.Machine(x.Machine)
		at, each, count = uint64(x.Phoff), uint64(x.Phentsize), uint64(x.Phnum)
	}
	h.end = saturatedSum(at, each*count)
	for ; count > 0 && at <= uint64(len(head)); count-- {
		kind, offset, length, err := readSegment(head[at:], order, wide)
		if err != nil {
			break
		}
		if kind == elf.PT_LOAD && length > 0 {
			h.end = max(h.end, saturatedSum(offset, length))
		}
		at += each
	}
	return h, true
}

// readSegment reads one program header.
func readSegment(b []byte, order binary.ByteOrder, wide bool) (kind elf.ProgType, offset, length uint64, err error) {
	if wide {
		var p elf.Prog64
		_, err = binary.Decode(b, order, &p)
		return elf.ProgType(p.Type), p.Off, p.Filesz, err
	}
	var p elf.Prog32
	_, err = binary.Decode(b, order, &p)
	return elf.ProgType(p.Type), uint64(p.Off), uint64(p.Filesz), err
}

// saturatedSum returns a+b, or the largest number there is.
func saturatedSum(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return ^uint64(0)
	}
	return sum
}

// roundUp returns the next multiple of unit that is not below n.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// emulated reports whether Linux has a handler (binfmt_misc) for files that begin as head
// does. It may be one for another machine: whoever asks is only guessing.
func emulated(goos string, head []byte) bool {
	if goos != "linux" {
		return false
	}
	handlers, _ := filepath.Glob("/proc/sys/fs/binfmt_misc/*") // none if it is not mounted
	return slices.ContainsFunc(handlers, func(file string) bool {
		text, _, _ := regularfile.Head(file, firstRead) // one that cannot be read is not known
		return bytes.Contains(text, []byte("\nmagic "+hex.EncodeToString(head[:2])))
	})
}
