// Command hello is a bare HTTP server. It says where it serves in the words of
// Orla's log, so that both can be started by the same means.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, `{"msg":"serving","url":"http://%s/"}`+"\n", l.Addr())
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
