package doctor

import (
	"context"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// versionPatience bounds the time until a program says its version.
const versionPatience = 5 * time.Second

// installersAsked are the programs whose versions matter for the packages of tools.
var installersAsked = []string{"python3", "uv", "node", "npm", "pnpm"}

// Installers looks at the programs that install packages. needed has the tools that need one, by the
// program.
func Installers(ctx context.Context, needed map[string][]string) []Finding {
	const check = "dependencies"
	var there []string
	var list []Finding
	for _, program := range installersAsked {
		if at, err := exec.LookPath(program); err == nil {
			there = append(there, strings.TrimSpace(program+" "+versionOf(ctx, at)))
		}
	}
	for _, program := range slices.Sorted(maps.Keys(needed)) {
		at, err := exec.LookPath(program)
		switch {
		case err != nil:
			list = append(list, fail(check, installOf(program), "%s is missing, and installs the packages of %s", program, some(needed[program])))
		case strings.HasPrefix(program, "python") && !hasVenv(ctx, at):
			list = append(list, fail(check, install("uv"), "%s has no module venv with pip, and there is no uv: nothing installs the packages of %s", program, some(needed[program])))
		default:
			list = append(list, ok(check, "%s installs the packages of %s", program, some(needed[program])))
		}
	}
	if len(there) == 0 {
		return append(list, ok(check, "there is no Python and no Node"))
	}
	return append(list, ok(check, "found %s", strings.Join(there, ", ")))
}

// known are the programs that are asked for their versions. Any other might do something else than to answer, and a package
// of somebody else chooses the name.
func known(program string) bool {
	_, isElsewhere := elsewhere[program]
	return isElsewhere || slices.Contains(packaged, program) || slices.Contains(installersAsked, program)
}

// Requirement is the finding about a program that tools require, such as "node>=20"; allows reports whether a version is
// good. A program that Orla does not know is not run, so that its version does not count.
func Requirement(ctx context.Context, requirement string, allows func(version, specification string) bool, tools []string) Finding {
	const check = requirements
	name, specification := required(requirement)
	at, err := exec.LookPath(name)
	if err != nil {
		return missing(requirement, tools)
	}
	if specification == "" {
		return ok(check, "%s is there, for %s", name, some(tools))
	}
	if !known(name) {
		return ok(check, "%s is there, for %s; its version was not asked for, and has to be %s", name, some(tools), specification)
	}
	version := versionOf(ctx, at)
	if !allows(version, specification) {
		return fail(check, installOf(name), "%s is %s, and %s needs %s", name, version, some(tools), requirement)
	}
	return ok(check, "%s is %s, for %s", name, version, some(tools))
}

// requirements is the check about programs that tools require.
const requirements = "requirements"

// required splits a requirement into a program and what its version has to be.
func required(requirement string) (program, specification string) {
	program = requirement
	if at := strings.IndexAny(requirement, "<>=!~ "); at > 0 {
		program, specification = requirement[:at], strings.TrimSpace(requirement[at:])
	}
	if program == "python" {
		program = "python3"
	}
	return program, specification
}

func missing(requirement string, tools []string) Finding {
	name, _ := required(requirement)
	return fail(requirements, installOf(name), "%s is missing, and %s needs %s", name, some(tools), requirement)
}

// Absent returns the finding about the first program that a tool requires and that find does not find; false if all
// are there. It runs nothing, so versions do not count.
func Absent(all []string, find func(program string) string, tool string) (Finding, bool) {
	for _, requirement := range all {
		if name, _ := required(requirement); find(name) == "" {
			return missing(requirement, []string{tool}), true
		}
	}
	return Finding{}, false
}

// Git is the finding about the program git, which orla install needs for repositories and registries.
func Git(ctx context.Context) Finding {
	const check = "git"
	at, err := exec.LookPath("git")
	if err != nil {
		return warn(check, install("git"), "git is missing, and orla install fetches packages with it")
	}
	return ok(check, "there is git %s, for orla install", versionOf(ctx, at))
}

// installOf is install for programs that come with others.
func installOf(program string) string {
	switch program {
	case "npm":
		return install("node")
	case "pnpm":
		return "npm install -g pnpm"
	}
	return install(program)
}

// versionOf is the last word of what a program says its version is; "" if it does not say.
func versionOf(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.ContainsAny(word, "0123456789") {
			return strings.TrimPrefix(word, "v")
		}
	}
	return ""
}

// hasVenv reports whether a Python can make a virtual environment with pip. Debian has these modules in a package of
// their own.
func hasVenv(ctx context.Context, python string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	return exec.CommandContext(ctx, python, "-c", "import venv, ensurepip").Run() == nil
}
