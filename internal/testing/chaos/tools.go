package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kind is what kind of tool one of ours is, and so which harm can be done to it.
type kind int

const (
	aCapsule kind = iota
	aSimpleTool
)

// sort is one of the tools of the Orla under test.
type sort struct {
	name    string
	kind    kind
	runtime string   // further lines of a capsule's manifest
	offers  []string // the tools that it lists itself; nil if its manifest does
	again   bool     // its calls may be sent more than once
	sleeps  bool     // it has no process while nobody calls
	two     bool     // two processes may live for a moment
}

// Failures are followed by starts at once, so that a storm meets many starts.
const restarts = "restart: {initial_ms: 20, max_ms: 300, max_failures: 0, reset_after_ms: 500}\nstop_grace_ms: 400\ndrain_ms: 2000\nstartup_timeout_ms: 4000"

func sorts() []sort {
	return []sort{
		{name: "calm", runtime: "hot_load: {debounce_ms: 20}"},
		{name: "plain", runtime: "hot_load: {debounce_ms: 20}"},
		{name: "narrow", runtime: "max_concurrency: 2\nhot_load: {debounce_ms: 20}"},
		{name: "replaced", runtime: "hot_load: {mode: replace, debounce_ms: 20}", two: true},
		{name: "lazy", runtime: "start: lazy\nidle_timeout: 300ms\nhot_load: {debounce_ms: 20}", sleeps: true},
		{name: "pinged", runtime: "health: {interval_ms: 500, timeout_ms: 4000, failures: 2}\nhot_load: {debounce_ms: 20}"},
		{name: "lister", runtime: "hot_load: {debounce_ms: 20}", offers: []string{"one", "two"}},
		{name: "retried", runtime: "retry: {max_attempts: 3}\nhot_load: {debounce_ms: 20}", again: true},
		{name: "script", kind: aSimpleTool},
		{name: "spare", kind: aSimpleTool},
	}
}

func toolNames() (names []string) {
	for _, s := range sorts() {
		names = append(names, s.name)
	}
	return names
}

func kindOf(name string) kind { return sortOf(name).kind }

func sortOf(name string) sort {
	for _, s := range sorts() {
		if s.name == name {
			return s
		}
	}
	panic("no tool " + name)
}

// calledAs is the name by which clients call a tool.
func (s sort) calledAs() string {
	if s.offers == nil {
		return s.name
	}
	return s.name + "__" + s.offers[0]
}

// folder is a folder of tools on disk.
type folder struct {
	dir     string // the tools folder
	aside   string // on the same disk, not watched
	locks   string
	self    string // this program
	seed    uint64 // of the run
	hostile bool   // whether there is a hostile capsule
	version string // that whole tools have
}

// file is the program of a tool.
func (f *folder) file(s sort) string {
	if s.kind == aSimpleTool {
		return filepath.Join(f.dir, s.name+".sh")
	}
	return filepath.Join(f.dir, s.name, "main")
}

// program is the text of that file for a character.
func (f *folder) program(s sort, c character) string {
	if s.kind == aSimpleTool {
		return c.text(f.self, roleSimple, "# /// tool\n# description: A tool under fire.\n# arguments: stdin\n# ///\n")
	}
	if s.offers != nil && c.tools == nil {
		c.tools = s.offers
	}
	return c.text(f.self, roleCapsule, "")
}

// manifest is the text of a capsule's tool.yaml; more are further lines of it.
// What it cannot do without stands last: no part of it is a manifest of another tool.
func (f *folder) manifest(s sort, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: 1.0.0\ndescription: A capsule under fire.\n", s.name)
	if s.offers == nil {
		fmt.Fprintf(&b, "mcp: {input_schema: {type: object}, annotations: {idempotentHint: %t}}\n", s.again)
	}
	lock := filepath.Join(f.locks, s.name)
	if s.two {
		lock = ""
	}
	fmt.Fprintf(&b, "runtime:\n  mode: capsule\n  env: {%s: %q}\n", envLock, lock)
	for line := range strings.Lines(restarts + "\n" + s.runtime + "\n" + more) {
		if line != "\n" {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	b.WriteString("entrypoint: main\n")
	return b.String()
}

// whole writes all tools as they should be, with a version of their own.
func (f *folder) whole(version string) error {
	f.version = version
	if f.hostile {
		if err := f.wholeHostile(); err != nil {
			return err
		}
	}
	for _, s := range sorts() {
		if s.kind == aCapsule {
			if err := f.save(filepath.Join(f.dir, s.name, "tool.yaml"), f.manifest(s, "")); err != nil {
				return err
			}
		}
		if err := f.save(f.file(s), f.program(s, character{version: version})); err != nil {
			return err
		}
	}
	return nil
}

// wholeHostile writes the hostile capsule.
func (f *folder) wholeHostile() error {
	dir := filepath.Join(f.dir, hostileName)
	if err := f.save(filepath.Join(dir, "tool.yaml"), hostileManifest()); err != nil {
		return err
	}
	c := character{version: fmt.Sprint(f.seed) + f.version}
	return f.save(filepath.Join(dir, "main"), c.text(f.self, roleHostile, ""))
}

// save writes a file as editors do: aside, and then in its place.
func (f *folder) save(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	aside, err := os.CreateTemp(f.aside, "save-*")
	if err != nil {
		return err
	}
	_, err = aside.WriteString(text)
	if err == nil {
		err = aside.Chmod(0o755)
	}
	_ = aside.Close() // a file that could not be written shows when it is run
	if err != nil {
		return err
	}
	return os.Rename(aside.Name(), path)
}
