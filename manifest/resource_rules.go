package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/orla-project/orla/internal/yamldoc"
)

// rules are the kinds of governance documents (SPEC-TOOLS 8.3). This version does
// not enforce them. A call that such a document might forbid must not run, so
// every document that is, or may be, of one of these kinds has a Problem with
// Denies.
var rules = []string{"ToolPermission", "AgentRole", "AgentPolicy"}

// ruleKey finds one of these kinds as the value of a key kind, in any case, where
// a file is not parsed; ruleWord finds one anywhere.
var (
	ruleKey  = regexp.MustCompile(`(?i)\bkind["']?[ \t]*:\s*["']?(?:` + strings.Join(rules, "|") + `)\b`)
	ruleWord = regexp.MustCompile(`(?i)` + strings.Join(rules, "|"))
)

// mentionsRule is ruleWord.Match, fast enough for large files of data.
func mentionsRule(data []byte) bool {
	lower := make([]byte, len(data))
	for i, c := range data {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return slices.ContainsFunc(rules, func(kind string) bool { return bytes.Contains(lower, []byte(strings.ToLower(kind))) })
}

// visible is a text without what nobody sees of it, and with plain letters for those of
// full width: what was copied from a page may have either.
func visible(text string) string {
	const wide, plain = '\uff01', '!'
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Cf, r):
			return -1
		case r >= wide && r <= wide+'~'-plain:
			return r - wide + plain
		}
		return r
	}, text)
}

// ruleKind is the kind of governance documents that a kind is in another case; "" for none.
func ruleKind(kind string) string {
	kind = visible(kind)
	for _, rule := range rules {
		if strings.EqualFold(kind, rule) {
			return rule
		}
	}
	return ""
}

// ruleIn finds a key kind of a document, at any depth and in any case, whose
// value is such a kind: a list may hold governance documents.
func ruleIn(doc *yamldoc.Doc) (kind string, line, column int) {
	line, column, _ = doc.Find(func(key, value string) bool {
		if strings.EqualFold(visible(key), "kind") {
			kind = ruleKind(value)
		}
		return kind != ""
	})
	return kind, line, column
}

// mayRule reports whether a document of a kind is, or may be, a governance
// document. ours says that its apiVersion is Orla's.
func mayRule(doc *yamldoc.Doc, kind string, ours bool, data []byte) bool {
	if doc.Err() != nil {
		return mentionsRule(data)
	}
	if slices.Contains(servedKinds, kind) {
		return false
	}
	rule, _, _ := ruleIn(doc)
	switch {
	case rule != "":
		return true
	case kind == "": // it has none that can be read
		return ours && mentionsRule(data)
	}
	return ours && yamldoc.Nearest(visible(kind), rules) != ""
}

// readRule adds the fault of a document that is, or may be, a governance document.
func (d *declaration) readRule(kind, version string, data []byte) {
	const denied = "which this version does not enforce: every call is denied while it is there; take it out"
	d.rule = true
	rule, line, column := ruleIn(d.doc)
	switch near := yamldoc.Nearest(visible(kind), rules); {
	case rule != "" && ruleKind(kind) == rule:
		d.checkVersion(version)
		d.doc.Faultf("kind", "%s is a governance document, %s", rule, denied)
	case rule != "":
		d.doc.FaultAt(line, column, "%s is a governance document, %s", rule, denied)
	case near != "" && d.doc.Has("kind"):
		d.doc.Faultf("kind", "may stand for %q, a governance document, %s", near, denied)
	default:
		at := ruleWord.FindIndex(data)
		if at == nil { // mentionsRule has found one
			panic("manifest: no governance document is mentioned")
		}
		begin := 1 + bytes.LastIndexByte(data[:at[0]], '\n')
		d.doc.FaultAt(1+bytes.Count(data[:begin], []byte("\n")), 1+at[0]-begin,
			"%s stands here, so that this may be a governance document, %s", data[at[0]:at[1]], denied)
	}
}

// denied reports a document that denies every call.
func (w *walker) denied(path string, err error) {
	w.problems = append(w.problems, Problem{Path: path, Severity: Fault, Err: err, Denies: true})
}

// unreadable reports a file that may hold resources, and so a governance document,
// and cannot be read. A nil err is none.
func (w *walker) unreadable(path string, err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) || !mayBeResource(path) {
		return
	}
	w.denied(path, unknown(err))
}

// partly reports why a part of a file is not read. denies says that there may be a
// governance document in it.
func (w *walker) partly(path string, denies bool, err error) {
	if denies {
		w.denied(path, unknown(err))
		return
	}
	w.problem(path, "", Fault, err)
}

// unknown adds to the fault of a file what follows where nobody knows all that is
// in it.
func unknown(err error) error {
	return fmt.Errorf("%w; there may be a governance document in it, so that every call is denied until it can be read or is gone", err)
}

// rulesOf reports the governance documents of a file that is not read for
// resources. An error of reading is returned.
func (w *walker) rulesOf(at, path string) error {
	data, err := declaring(path)
	if err != nil || data == nil {
		return err
	}
	if len(data) >= maxManifest {
		w.tooLarge(at, data)
		return nil
	}
	list, err := readDeclarations(file{display: at, dir: filepath.Dir(path)}, data)
	for _, d := range list {
		if d.rule {
			w.denied(at, d.doc.Err())
		}
	}
	if mentionsRule(data) && err != nil {
		w.denied(at, unknown(err))
	}
	return nil
}

// tooLarge reports a file that is too large for resources, if it seems to hold
// some, or a governance document. It reports whether it does.
func (w *walker) tooLarge(at string, data []byte) bool {
	denies := ruleKey.Match(data)
	if denies || versionLine.Match(data[:headSize]) {
		w.partly(at, denies, yamldoc.Parse(at, data, yamldoc.Options{}).Err())
		return true
	}
	return false
}

// rulesIn reports the governance documents that stand beside a package's
// manifest: nothing there is a resource, but who wrote them means them to hold.
// Folders in the package are its own, and what cannot be read there is too.
func (w *walker) rulesIn(abs, display string) {
	entries, err := os.ReadDir(abs)
	if err != nil {
		return // the package has this fault
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == manifestFile || name == capsuleFile || strings.HasPrefix(name, ".") || isBackup(name) || !mayBeResource(name) {
			continue
		}
		if path, err := filepath.EvalSymlinks(filepath.Join(abs, name)); err == nil {
			_ = w.rulesOf(filepath.Join(display, name), path)
		}
	}
}

// mayBeResource reports whether a file of that name may hold resources.
func mayBeResource(name string) bool {
	return slices.Contains(resourceExtensions, strings.ToLower(filepath.Ext(name)))
}
