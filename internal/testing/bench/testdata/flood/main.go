// Command flood is a client that takes what it can get: on each of its connections
// it repeats a request for as long as its input is open. It is a process of its
// own, so that those who measure what it does to others do not wait for it.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
)

// firstID stands in the request as its id; each connection has another.
const firstID = 1_000_000

func main() {
	host := flag.String("host", "", "where to connect")
	connections := flag.Int("connections", 1, "how many")
	deaf := flag.Bool("deaf", false, "send the request once, and read nothing")
	file := flag.String("request", "", "a file with the bytes of the request, or of one for each connection")
	size := flag.Int("size", 0, "of one request in the file; 0: there is one")
	flag.Parse()
	request, err := os.ReadFile(*file)
	if err == nil {
		err = run(*host, slices.Collect(slices.Chunk(request, cmp.Or(*size, len(request)))), *connections, *deaf)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(host string, requests [][]byte, n int, deaf bool) error {
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			return err
		}
		conns[i] = conn
	}
	var asking sync.WaitGroup
	for i, conn := range conns {
		own := bytes.Replace(requests[i%len(requests)], fmt.Append(nil, firstID), fmt.Append(nil, firstID+i), 1)
		asking.Go(func() { ask(conn, own, deaf) })
	}
	fmt.Println("flooding")
	_, err := io.Copy(io.Discard, os.Stdin)
	for _, conn := range conns {
		_ = conn.Close() // ends what is under way
	}
	asking.Wait()
	return err
}

// ask repeats a request until the connection ends, however it is answered.
func ask(conn net.Conn, request []byte, deaf bool) {
	answers := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(request); err != nil || deaf {
			return
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return
		}
	}
}
