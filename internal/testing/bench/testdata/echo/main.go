// Command echo copies stdin to stdout. It stands in for echo.c where there is
// no C compiler.
package main

import (
	"io"
	"os"
)

func main() {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		os.Exit(1)
	}
}
