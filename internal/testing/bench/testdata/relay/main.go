// Command relay is the least that can stand between a client and a capsule: it
// gives each request an id of its own and copies the rest. It has no timeouts.
// Only as checked it checks something: that each line is JSON.
//
//	relay http CAPSULE [PORT]
//	relay stdio CAPSULE
//	relay checked CAPSULE
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// longest is how long a line of the capsule may be.
const longest = 4 << 20

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: relay http|stdio|checked CAPSULE [PORT]")
		os.Exit(2)
	}
	port := "0"
	if len(os.Args) > 3 {
		port = os.Args[3]
	}
	p, err := start(os.Args[2])
	if err == nil {
		if os.Args[1] == "http" {
			err = serveHTTP(p, port)
		} else {
			err = serveStdio(p, os.Args[1] == "checked")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pipe is a capsule and the calls that it has not answered.
type pipe struct {
	in  io.WriteCloser
	out *bufio.Reader

	mu      sync.Mutex // guards the fields that follow, and writing
	last    int
	waiting map[int]waiter
	line    []byte // reused by every request
}

// waiter is where an answer goes.
type waiter struct {
	id     string      // the client's own
	answer chan []byte // what follows the id; nil on stdio
}

func start(path string) (*pipe, error) {
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &pipe{in: in, out: bufio.NewReaderSize(out, longest), waiting: map[int]waiter{}}
	_, err = p.out.ReadSlice('\n') // its hello
	return p, err
}

var idKey = []byte(`"id":`)

// cutID takes a message apart at its id.
func cutID(message []byte) (before, id, after []byte, ok bool) {
	i := bytes.Index(message, idKey)
	if i < 0 {
		return nil, nil, nil, false
	}
	i += len(idKey)
	end := bytes.IndexByte(message[i:], ',')
	if end < 0 {
		return nil, nil, nil, false
	}
	return message[:i], message[i : i+end], message[i+end:], true
}

// send passes a request on, with an id that is not in use.
func (p *pipe) send(request []byte, answer chan []byte) error {
	before, id, after, ok := cutID(request)
	if !ok {
		return errors.New("a request without an id")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.waiting[p.last] = waiter{string(id), answer}
	p.line = strconv.AppendInt(append(p.line[:0], before...), int64(p.last), 10)
	p.line = append(append(p.line, after...), '\n')
	_, err := p.in.Write(p.line)
	return err
}

// receive reads one answer. Its parts are good until the next.
func (p *pipe) receive() (to waiter, before, after []byte, err error) {
	line, err := p.out.ReadSlice('\n')
	if err != nil {
		return to, nil, nil, err
	}
	before, id, after, ok := cutID(line)
	if !ok {
		return to, nil, nil, fmt.Errorf("an answer without an id: %.200q", line)
	}
	number, err := strconv.Atoi(string(id))
	if err != nil {
		return to, nil, nil, err
	}
	p.mu.Lock()
	to = p.waiting[number]
	delete(p.waiting, number)
	p.mu.Unlock()
	return to, before, after, nil
}

const welcome = `{"jsonrpc":"2.0","id":1,"result":{}}`

func serveHTTP(p *pipe, port string) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, `{"msg":"serving","url":"http://%s/"}`+"\n", l.Addr())
	ended := make(chan error, 2)
	go func() {
		for {
			to, before, after, err := p.receive()
			if err != nil {
				ended <- err
				return
			}
			answer := make([]byte, 0, len(before)+len(to.id)+len(after))
			to.answer <- append(append(append(answer, before...), to.id...), after...)
		}
	}()
	go func() { ended <- http.Serve(l, http.HandlerFunc(p.post)) }()
	return <-ended
}

// post answers a call with what the capsule says, and all else with nothing.
func (p *pipe) post(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Mcp-Session-Id", "bench")
	w.Header().Set("Content-Type", "application/json")
	answer := []byte(welcome)
	if bytes.Contains(body[:min(len(body), 100)], []byte(`"tools/call"`)) {
		answered := make(chan []byte, 1)
		if err := p.send(body, answered); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		answer = <-answered
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) // the client's leaving is its own business
}

func serveStdio(p *pipe, checked bool) error {
	ended := make(chan error, 2)
	var writing sync.Mutex
	go func() {
		var buf []byte
		for {
			to, before, after, err := p.receive()
			if err != nil {
				ended <- err
				return
			}
			buf = append(append(append(buf[:0], before...), to.id...), after...)
			if checked && !json.Valid(buf) {
				ended <- errors.New("the capsule sends what is not JSON")
				return
			}
			writing.Lock()
			_, err = os.Stdout.Write(buf)
			writing.Unlock()
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() {
		lines := bufio.NewReaderSize(os.Stdin, longest)
		for {
			line, err := lines.ReadSlice('\n')
			if errors.Is(err, io.EOF) {
				ended <- nil
				return
			}
			if err != nil {
				ended <- err
				return
			}
			line = line[:len(line)-1]
			if checked && !json.Valid(line) {
				ended <- errors.New("the client sends what is not JSON")
				return
			}
			switch head := line[:min(len(line), 100)]; {
			case bytes.Contains(head, []byte(`"tools/call"`)):
				err = p.send(line, nil)
			case bytes.Contains(head, []byte(`"initialize"`)):
				writing.Lock()
				_, err = os.Stdout.WriteString(welcome + "\n")
				writing.Unlock()
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	return <-ended
}
