package doctor

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// installers are the package managers that are looked for, with how each
// installs, and what programs are called there if not as they are.
var installers = []struct {
	program, install string
	names            map[string]string
}{
	{"apt-get", "sudo apt-get install", map[string]string{"node": "nodejs", "php": "php-cli", "Rscript": "r-base-core", "lua": "lua5.4"}},
	{"dnf", "sudo dnf install", map[string]string{"node": "nodejs", "php": "php-cli", "Rscript": "R-core"}},
	{"apk", "sudo apk add", map[string]string{"node": "nodejs", "php": "php84", "Rscript": "R", "lua": "lua5.4"}},
	{"pacman", "sudo pacman -S", map[string]string{"node": "nodejs", "python3": "python", "Rscript": "r"}},
	{"zypper", "sudo zypper install", map[string]string{"node": "nodejs", "Rscript": "R-base"}},
	{"brew", "brew install", map[string]string{"python3": "python", "Rscript": "r"}},
}

// elsewhere are programs that most package managers do not have.
var elsewhere = map[string]string{"deno": "https://deno.com", "bun": "https://bun.sh", "uv": "https://docs.astral.sh/uv", "tsx": "npm install -g tsx", "pwsh": "https://aka.ms/powershell"}

// packaged are the programs that the package managers above have, as they are or by names.
// Any other name may be misspelt, and be that of no package or of another one.
var packaged = []string{"bash", "dash", "zsh", "python3", "node", "ruby", "perl", "php", "lua", "Rscript", "gawk", "jq", "git", "ffmpeg", "curl"}

// Programs looks at the interpreters that tools need: those that are there, and
// those that are missing, each with what needs it.
func Programs(there, missing map[string][]string) []Finding {
	const check = "interpreters"
	var list []Finding
	for _, program := range slices.Sorted(maps.Keys(missing)) {
		list = append(list, fail(check, install(program), "%s is missing, and cannot run %s", program, some(missing[program])))
	}
	for _, program := range slices.Sorted(maps.Keys(there)) {
		list = append(list, ok(check, "%s is there, for %s", program, some(there[program])))
	}
	if len(list) == 0 {
		list = append(list, ok(check, "no tool needs one"))
	}
	return list
}

// Lacking is the finding about something that is missing: a failure if tools
// need it.
func Lacking(check, text, fix string, needed []string) Finding {
	if len(needed) == 0 {
		return warn(check, fix, "%s; no tool asks for it", text)
	}
	return fail(check, fix, "%s; it is for %s", text, some(needed))
}

// some names the first of many.
func some(tools []string) string {
	const most = 5
	tools = slices.Sorted(slices.Values(tools))
	if len(tools) > most {
		return strings.Join(tools[:most], ", ") + ", …"
	}
	return strings.Join(tools, ", ")
}

// install is the command that installs a program here; "" when that is not known.
func install(program string) string {
	if where, isElsewhere := elsewhere[program]; isElsewhere {
		return where
	}
	if !slices.Contains(packaged, program) {
		return ""
	}
	for _, i := range installers {
		if _, err := exec.LookPath(i.program); err != nil {
			continue
		}
		name := program
		if other, differs := i.names[program]; differs {
			name = other
		}
		return i.install + " " + name
	}
	return ""
}
