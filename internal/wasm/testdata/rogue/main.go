// Rogue misbehaves in the way that its input names.
package main

import (
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 sock_accept
//go:noescape
func sockAccept(fd int32, flags uint32, connection unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 proc_raise
//go:noescape
func procRaise(signal uint32) uint32

var sink [][]byte

func recurse(n int) int { return recurse(n+1) + n }

func main() {
	input, _ := io.ReadAll(os.Stdin)
	switch string(input) {
	case "loop":
		for {
			sink = nil
		}
	case "recurse":
		fmt.Println(recurse(0))
	case "grow":
		for {
			sink = append(sink, make([]byte, 1<<20))
		}
	case "exit":
		fmt.Fprintln(os.Stderr, "I leave")
		os.Exit(3)
	case "leave well":
		fmt.Print("well")
		os.Exit(0)
	case "panic":
		panic("I cannot")
	case "flood stdout":
		for {
			fmt.Println("all work and no play")
		}
	case "flood stderr":
		fmt.Fprintln(os.Stderr, "the first line")
		for range 100_000 {
			fmt.Fprintln(os.Stderr, "all work and no play")
		}
		fmt.Fprintln(os.Stderr, "the last line")
	case "sleep":
		time.Sleep(time.Hour)
	case "nap":
		time.Sleep(time.Millisecond)
		fmt.Print("awake")
	case "reach":
		reach()
	default:
		fmt.Printf("%s", input)
	}
}

// reach tries to access what it must not, and reports the results.
func reach() {
	for _, path := range []string{"/", ".", "/etc/passwd", "/proc/self/environ", "main.go"} {
		if f, err := os.Open(path); err == nil {
			fmt.Println("opened", path, f.Name())
		}
		if err := os.WriteFile(path+"x", nil, 0o600); err == nil {
			fmt.Println("wrote", path)
		}
	}
	for fd := range int32(16) {
		var connection int32
		if sockAccept(fd, 0, unsafe.Pointer(&connection)) == 0 {
			fmt.Println("accepted", fd)
		}
	}
	if procRaise(9) == 0 {
		fmt.Println("raised a signal")
	}
	if len(os.Args) > 0 || len(os.Environ()) > 0 {
		fmt.Println("arguments", os.Args, "environment", os.Environ())
	}
	fmt.Print("done")
}
