package bundle

import (
	"encoding/json"
	"strings"
)

// The programs that Orla starts. Each runs the server in its own process.
const (
	nodeFile   = "orla-run.cjs"
	pythonFile = "orla_run.py"
	shellFile  = "orla-run"
)

// start is what a program runs.
type start struct {
	file     string // of the package
	module   string // of Python
	packaged string // a package of the environment, whose program is run
	program  string // which of its programs; "" for the one with its name, or the only one
	command  word   // of the shell
	args     []word
	env      []variable
}

// encoded is a start for the programs of Node and Python.
type encoded struct {
	File    string `json:"file,omitempty"`
	Module  string `json:"module,omitempty"`
	Package string `json:"package,omitempty"`
	Program string `json:"program,omitempty"`
	Args    []any  `json:"args"`
	Env     []any  `json:"env"`
}

func (s start) encode() string {
	parts := func(w word) []any {
		list := []any{}
		for _, p := range w {
			switch {
			case p.dir:
				list = append(list, map[string]bool{"dir": true})
			case p.env != "":
				list = append(list, map[string]string{"env": p.env})
			default:
				list = append(list, p.text)
			}
		}
		return list
	}
	e := encoded{File: s.file, Module: s.module, Package: s.packaged, Program: s.program, Args: []any{}, Env: []any{}}
	for _, a := range s.args {
		e.Args = append(e.Args, parts(a))
	}
	for _, v := range s.env {
		e.Env = append(e.Env, []any{v.name, parts(v.value)})
	}
	out, _ := json.Marshal(e) // it has only strings, which can always be encoded
	return string(out)
}

const nodeCode = `#!/usr/bin/env node
// Written by Orla. It runs the server in this process.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const start = @START@;

const text = (parts) => parts.map((p) => (typeof p === "string" ? p : p.env ? (process.env[p.env] ?? "") : __dirname)).join("");

function installed(name, program) {
  const folders = [path.join(__dirname, "node_modules"), ...(process.env.NODE_PATH ?? "").split(path.delimiter)];
  const folder = folders.filter(Boolean).map((f) => path.join(f, name)).find((f) => fs.existsSync(path.join(f, "package.json")));
  if (!folder) throw new Error("the package " + name + " is not installed");
  const { bin } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
  const own = name.split("/").pop();
  const programs = typeof bin === "string" ? { [own]: bin } : (bin ?? {});
  const names = Object.keys(programs);
  const file = programs[program ?? own] ?? (!program && names.length === 1 ? programs[names[0]] : undefined);
  if (!file) throw new Error("the package " + name + " has no program " + (program ?? own) + ": it has " + names.join(", "));
  return path.join(folder, file);
}

for (const [name, value] of start.env) process.env[name] = text(value);
const file = start.package ? installed(start.package, start.program) : path.join(__dirname, start.file);
process.argv = [process.execPath, fs.realpathSync(file), ...start.args.map(text)];
require("node:module").runMain();
`

const pythonCode = `#!/usr/bin/env python3
# Written by Orla. It runs the server in this process.
import json
import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
START = json.loads(@START@)


def text(parts):
    return "".join(p if isinstance(p, str) else os.environ.get(p["env"], "") if "env" in p else HERE for p in parts)


def program(name, wanted):
    """The function of a program of a package, and the program's name."""
    from importlib import import_module, metadata

    try:
        found = {e.name: e for e in metadata.distribution(name).entry_points if e.group == "console_scripts"}
    except metadata.PackageNotFoundError:
        found = {}
    own = wanted or name
    same = [n for n in found if n.replace("_", "-").lower() == own.replace("_", "-").lower()]
    if same or (len(found) == 1 and not wanted):
        chosen = same[0] if same else next(iter(found))
        return chosen, found[chosen].load()
    # The project itself is not installed, but its own programs can run.
    project = os.path.join(HERE, "pyproject.toml")
    if os.path.exists(project):
        import tomllib

        with open(project, "rb") as f:
            scripts = tomllib.load(f).get("project", {}).get("scripts", {})
        if own in scripts:
            sys.path[:0] = [os.path.join(HERE, "src"), HERE]
            module, _, function = scripts[own].partition(":")
            return own, getattr(import_module(module.strip()), function.strip())
    sys.exit(f"the package {name} has no program {own}: it has {', '.join(sorted(found)) or 'none'}")


def main():
    for name, value in START["env"]:
        os.environ[name] = text(value)
    sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
    args = [text(a) for a in START["args"]]
    if "file" in START:
        file = os.path.join(HERE, START["file"])
        sys.path[0] = os.path.dirname(file)
        sys.argv = [file, *args]
        runpy.run_path(file, run_name="__main__")
    elif "module" in START:
        sys.argv = [START["module"], *args]
        runpy.run_module(START["module"], run_name="__main__", alter_sys=True)
    else:
        del sys.path[0]
        name, run = program(START["package"], START.get("program"))
        sys.argv = [name, *args]
        sys.exit(run())


if __name__ == "__main__":
    main()
`

func (s start) node() string { return strings.Replace(nodeCode, "@START@", s.encode(), 1) }

// python has the JSON in a string, which is one of Python's as well.
func (s start) python() string {
	return strings.Replace(pythonCode, "@START@", scalar(s.encode()), 1)
}

func (s start) shell() string {
	var out strings.Builder
	out.WriteString("#!/bin/sh\n# Written by Orla. It becomes the server.\nhere=$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && pwd) || exit\n")
	for _, v := range s.env {
		out.WriteString("export " + v.name + "=" + quoteShell(v.value) + "\n")
	}
	out.WriteString("exec " + quoteShell(s.command))
	for _, a := range s.args {
		out.WriteString(" " + quoteShell(a))
	}
	out.WriteString("\n")
	return out.String()
}

// quoteShell returns a word that the shell takes as it is.
func quoteShell(w word) string {
	var out strings.Builder
	for _, p := range w {
		switch {
		case p.dir:
			out.WriteString(`"$here"`)
		case p.env != "":
			out.WriteString(`"${` + p.env + `-}"`)
		default:
			out.WriteString("'" + strings.ReplaceAll(p.text, "'", `'\''`) + "'")
		}
	}
	if out.Len() == 0 {
		return "''"
	}
	return out.String()
}
