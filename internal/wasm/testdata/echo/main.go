package main

import (
	"encoding/json"
	"io"
	"os"
)

func main() {
	data, _ := io.ReadAll(os.Stdin)
	var req struct {
		Input string `json:"input"`
	}
	_ = json.Unmarshal(data, &req)
	resp := map[string]string{
		"contract_version": "v1",
		"status":           "ok",
		"output":           req.Input,
	}
	_ = json.NewEncoder(os.Stdout).Encode(resp)
}
