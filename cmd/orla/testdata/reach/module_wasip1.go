package main

import "encoding/json"

// more is what only processes can try.
var more = []attempt{
	{"opens a raw socket", never},
	{"signals Orla", never},
	{"traces its parent", never},
	{"mounts a file system", never},
	{"makes a user namespace", never},
	{"becomes root by a setuid program", never},
	{"has 200 processes at once", never},
	{"has 256 MiB of memory", func(target) string { return memory() }},
}

// never is what no module can ask for: there is no such call.
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
