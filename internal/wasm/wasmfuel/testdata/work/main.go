// Work is a module with typical work of a tool: it reads JSON, sorts, hashes, and writes JSON.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
)

func main() {
	var in struct {
		Input string `json:"input"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	words := strings.Fields(in.Input)
	slices.Sort(words)
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"words": words, "sum": hex.EncodeToString(sum[:])}); err != nil {
		panic(err)
	}
}
