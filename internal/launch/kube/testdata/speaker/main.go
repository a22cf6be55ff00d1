// Command speaker is the process of the tests with a Pod. It says hello on both streams, and then does what each line
// of its stdin says. What it says on stdout looks like JSON-RPC.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func say(id int, result any) {
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
	_, _ = os.Stdout.Write(append(raw, '\n'))
}

func main() {
	fmt.Fprintln(os.Stderr, "stderr says hello", os.Getenv("ORLA_GENERATION"))
	fmt.Fprintln(os.Stderr, "began at", time.Now().UnixNano())
	fmt.Println(`{"jsonrpc":"2.0","method":"hello"}`)
	fmt.Println("a banner")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		fmt.Fprintln(os.Stderr, "stopping")
		fmt.Fprintln(os.Stderr, "ended at", time.Now().UnixNano())
		os.Exit(7)
	}()
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(9)
		}
		var do struct {
			ID   int
			Do   string
			N    int
			Text string
		}
		if err := json.Unmarshal([]byte(line), &do); err != nil {
			fmt.Fprintln(os.Stderr, "not understood:", err, len(line))
			continue
		}
		switch do.Do {
		case "length":
			say(do.ID, len(do.Text))
		case "big":
			say(do.ID, strings.Repeat("x", do.N))
		case "flood":
			for i := range do.N {
				say(do.ID, fmt.Sprint(do.Text, i))
			}
		case "later":
			time.Sleep(time.Duration(do.N) * time.Millisecond)
			say(do.ID, "later")
		case "stderr":
			fmt.Fprintln(os.Stderr, do.Text)
		case "env":
			say(do.ID, os.Getenv(do.Text))
		case "read":
			raw, err := os.ReadFile(do.Text)
			say(do.ID, fmt.Sprintf("%s%v", raw, map[bool]any{true: "", false: err}[err == nil]))
		case "write":
			say(do.ID, fmt.Sprint(os.WriteFile(do.Text, []byte("x"), 0o600)))
		case "deaf":
			signal.Ignore(syscall.SIGTERM)
			say(do.ID, "deaf")
		case "memory":
			var all [][]byte
			for {
				piece := make([]byte, 1<<20)
				for i := range piece {
					piece[i] = 1
				}
				all = append(all, piece)
			}
		case "exit":
			os.Exit(do.N)
		}
	}
}
