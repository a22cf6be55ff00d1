package manifest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/secret"
	"github.com/orla-project/orla/internal/yamldoc"
)

const (
	maxDocuments = 1000 // how many documents of a file are read
	maxFaulty    = 100  // and of how many the faults are listed
)

// versionLine, kindLine and headLine, which is anybody's, find what a document
// says of itself where it cannot be parsed. Only what begins a line is certain not to be about something else.
var (
	versionLine = regexp.MustCompile(`(?m)^(?:[ \t]*\{)?[ \t]*["']?apiVersion["']?[ \t]*:[ \t]*["']?(orloj\.dev/[^\s"',}]*)`)
	kindLine    = regexp.MustCompile(`(?m)^["']?kind["']?[ \t]*:[ \t]*["']?([A-Za-z]+)`)
	headLine    = regexp.MustCompile(`(?m)^["']?(?:apiVersion|kind)["']?[ \t]*:`)
)

// declaration is one document of a file of resources, on its way to being what
// it declares.
type declaration struct {
	description
	file file
	name string // of the tool; "" where it is none, or not known

	namespace string

	tool   Tool // meant if it has a name and the doc no faults
	secret secret.Secret
	server yamldoc.Fault // where mcp_server_ref stands; zero where that is not given
	rule   bool          // it is, or may be, a governance document, and has a fault
}

// file is a file of resources.
type file struct {
	display string // for messages
	dir     string // absolute, links resolved: the folder it is in
}

// readDeclarations reads the documents of a file. Those that are no resources
// are left out; if there is not one, the file is just data.
func readDeclarations(f file, data []byte) (list []*declaration, err error) {
	if filepath.Ext(f.display) == ".json" {
		return readJSON(f, data)
	}
	documents, more := yamldoc.Documents(data, maxDocuments)
	resources := 0
	for _, document := range documents {
		doc := yamldoc.Parse(f.display, document.Data, yamldoc.Options{Position: document.Position, Hide: true})
		d, declares := declare(f, doc, document.Data)
		switch {
		case declares:
			resources++
			list = append(list, d)
		case !doc.Empty() && doc.Err() == nil && !doc.Has("apiVersion") && !doc.Has("kind"):
			stray := doc.At("", "is ignored: this document has neither apiVersion: %s nor a kind", apiVersion)
			list = append(list, &declaration{description: description{doc: doc, warnings: []error{stray}}, file: f})
		case doc.Err() != nil && !headLine.Match(document.Data): // it may be the rest of a resource
			list = append(list, &declaration{description: description{doc: doc}, file: f})
		}
	}
	if resources == 0 && (more == 0 || !holdsWord(data, ruleWords)) {
		return nil, nil
	}
	if more > 0 {
		err = yamldoc.Faults{{File: f.display, Line: more, Column: 1, Msg: fmt.Sprintf("a file may hold %d documents; this one and those below it are not read", maxDocuments)}}
	}
	return list, err
}

// readJSON reads a file that is to be JSON, and so holds one document.
func readJSON(f file, data []byte) ([]*declaration, error) {
	if !mayDeclare(data) {
		return nil, nil
	}
	doc := yamldoc.Parse(f.display, data, yamldoc.Options{Hide: true})
	d, declares := declare(f, doc, data)
	err := yamldoc.NotJSON(f.display, data) // the decoder takes more than JSON, other readers do not
	switch {
	case declares && (err == nil || d.rule):
		return []*declaration{d}, nil
	case declares, err != nil && holdsWord(data, ruleWords): // in a comment above it may be anything
		return nil, err
	}
	return nil, nil
}

// declare reads a document. It reports whether that declares something of ours,
// as its version or its kind says.
func declare(f file, doc *yamldoc.Doc, data []byte) (*declaration, bool) {
	version, _ := doc.Text("apiVersion")
	kind, _ := doc.Text("kind")
	parsed := doc.Err() == nil
	if !parsed {
		version, kind = firstGroup(versionLine, data), firstGroup(kindLine, data)
	}
	ours := strings.HasPrefix(version, "orloj.dev/")
	rule := mayRule(doc, version, kind, data)
	if !ours && !slices.Contains(servedKinds, kind) && !rule {
		return nil, false
	}
	d := &declaration{description: description{doc: doc}, file: f}
	if rule {
		doc.Reveal("spec.auth")
		d.readRule(kind, version, data)
		return d, true
	}
	if !ours && kind == kindSecret && version == "v1" {
		d.warnings = append(d.warnings, doc.At("apiVersion", "is ignored, as it is a Secret of Kubernetes; one for Orla has apiVersion: %s", apiVersion))
		return d, true
	}
	if kind != kindSecret && slices.Contains(servedKinds, kind) {
		doc.Reveal("spec.auth") // people write secrets there
	}
	switch {
	case kind == kindTool:
		d.readTool()
	case kind == kindMCPServer:
		d.readServer()
	case kind == kindSecret:
		d.readSecret()
	case !parsed: // which is its fault already
	default:
		d.checkVersion(version)
		d.unknownKind(kind)
	}
	if rule, _, _ := ruleIn(doc); doc.Err() != nil && rule != "" { // of two keys kind, nobody knows which is meant
		d.readRule("", version, data)
	}
	return d, true
}

// firstGroup returns what a pattern's only group finds, or "".
func firstGroup(pattern *regexp.Regexp, data []byte) string {
	if m := pattern.FindSubmatch(data); m != nil {
		return string(m[1])
	}
	return ""
}

func (d *declaration) checkVersion(version string) {
	switch {
	case !d.doc.Has("apiVersion"):
		d.doc.Faultf("apiVersion", "is required: %s", apiVersion)
	case version != apiVersion:
		d.doc.Faultf("apiVersion", "wants %s, got %q", apiVersion, version)
	}
}

func (d *declaration) unknownKind(kind string) {
	wants := "wants " + strings.Join(servedKinds[:len(servedKinds)-1], ", ") + " or " + servedKinds[len(servedKinds)-1]
	if !d.doc.Has("kind") {
		d.doc.Faultf("kind", "is required: it %s", wants)
		return
	}
	if near := yamldoc.Nearest(kind, servedKinds); near != "" {
		wants += fmt.Sprintf("; did you mean %q?", near)
	}
	d.doc.Faultf("kind", "%s", wants)
}

// identify checks what every kind has in metadata, and keeps the namespace. It
// returns the name, or "" if that is none.
func (d *declaration) identify(m metadataKeys) (name string) {
	if d.doc.Has("metadata.name") && !validName(m.Name) {
		d.doc.Faultf("metadata.name", "must be 1 to %d of A-Z a-z 0-9 _ . and -", maxName)
		m.Name = ""
	}
	if !d.doc.Has("metadata.namespace") {
		d.namespace = secret.DefaultNamespace
		return m.Name
	}
	if err := secret.CheckWord(m.Namespace); err != nil {
		d.doc.Faultf("metadata.namespace", "%v", err)
	}
	d.namespace = m.Namespace
	return m.Name
}

// hasSpec reports whether there is a spec to look at. What it lacks is no news
// where there is none.
func (d *declaration) hasSpec() bool {
	_, text := d.doc.Text("spec")
	return d.doc.Has("spec") && !text
}

// secretRef reads a reference to a secret.
func (d *declaration) secretRef(key, text string) secret.Ref {
	ref, err := secret.ParseRef(text, d.namespace)
	if err != nil {
		d.doc.Faultf(key, "%v", err)
	}
	return ref
}

// checkVariables checks environment variables, in order, so that the same file
// always has the same faults.
func (d *declaration) checkVariables(key string, env envKeys) {
	for _, name := range sortedKeys(env) {
		d.checkVariable(key+"."+name, name)
		d.checkNUL(key+"."+name, env[name])
	}
}

func (d *declaration) checkVariable(key, name string) {
	if why := badVariable(name); why != "" {
		d.doc.Faultf(key, "%s", why)
	}
}

func (d *declaration) checkNUL(key, text string) {
	if strings.ContainsRune(text, 0) {
		d.doc.Faultf(key, "must not hold a NUL byte")
	}
}
