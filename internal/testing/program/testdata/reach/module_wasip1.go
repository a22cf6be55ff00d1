package main

import "encoding/json"

var ofProcesses = []attempt{
	{what: "opens a raw socket", try: never},
	{what: "signals Orla's process", try: never},
	{what: "traces Orla's process", try: never},
	{what: "mounts a file system", try: never},
	{what: "makes a user namespace", try: never},
	{what: "becomes root by a setuid program", try: never},
	{what: "has 200 processes at once", try: never, last: true},
	{what: "has 256 MiB of memory", try: func(target) string { return takes(256 << 20) }, last: true},
}

// never is what a module has no words for: WASI has no such call.
func never(target) string { return no }

func identity() string  { return "nobody" }
func capable() string   { return no }
func runsOwn() string   { return no }
func child(string) bool { return false }

func unwrap(given []byte) []byte {
	var request struct{ Input string }
	if err := json.Unmarshal(given, &request); err != nil {
		fail(err)
	}
	return []byte(request.Input)
}

func wrap(lines string) []byte {
	answer, err := json.Marshal(map[string]string{"contract_version": "v1", "status": "ok", "output": lines})
	if err != nil {
		fail(err)
	}
	return answer
}
