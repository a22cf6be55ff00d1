// Command program is what tests run in containers. It is always statically linked.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/orla-project/orla/internal/launch/container"
)

func main() {
	switch os.Args[1] {
	case "probe":
		os.Exit(container.Probe(os.Args[2:], os.Stdout))
	case "echo": // until the end of its input
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println(lines.Text())
		}
	}
}
