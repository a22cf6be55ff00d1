// Package resource reads files of tool resources: YAML and JSON documents that
// declare a tool, an MCP server, a secret or rules (SPEC-TOOLS 8.2). It also tells which files may hold a
// governance document that cannot be read: every call is denied while there is one (8.3).
package resource

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// maxDocuments is how many documents of a file are read.
const maxDocuments = 1000

// versionLine, kindLine and headLine find the apiVersion and the kind of a document that cannot be parsed. They
// match only at the beginning of a line: elsewhere the words may be about something else. headLine also matches
// those of other programs.
var (
	versionLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(?:[ \t]*\{)?[ \t]*["']?apiVersion["']?[ \t]*:[ \t]*["']?(orloj\.dev/[^\s"',}]*)`)
	})
	kindLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^["']?kind["']?[ \t]*:[ \t]*["']?([A-Za-z]+)`) })
	headLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^["']?(?:apiVersion|kind)["']?[ \t]*:`) })
)

// Declaration is one document of a file of resources, and what it declares.
type Declaration struct {
	keys.Description
	File File
	Name string // of the tool; "" if it is not a tool, or has no valid name

	Tool     manifest.Tool // meant if it has a name and Doc has no faults
	Secret   secret.Secret
	NoServer yamldoc.Fault  // the warning for a tool whose McpServer does not exist; zero for other types
	Rules    manifest.Rules // what a governance document says; empty if it has a fault
	Rule     bool           // it is, or may be, a governance document, and has a fault

	namespace string
	broken    bool // it is not known what it declares, or was to declare
	listed    bool // it is a list of what would be governance documents
}

// File is a file of resources.
type File struct {
	Display string // for messages
	Dir     string // absolute, links resolved: the folder it is in

	cluster bool // it is a custom resource of a cluster, and is read as if it were in Dir
}

// Parse reads the documents of a file, and leaves out those that are not resources. A file without resources is
// data; only warnings about rules in lists are returned for it. The error says why a part of the file is not read;
// unsure says that there may be a governance document in that part.
func Parse(f File, data []byte) (list []*Declaration, unsure bool, err error) {
	if filepath.Ext(f.Display) == ".json" {
		return readJSON(f, data)
	}
	documents := yamldoc.Documents(data)
	resources, more := 0, 0
	for i, document := range documents {
		last := i == len(documents)-1
		if i == maxDocuments {
			more = document.Line
		}
		if more > 0 && !mayHold(document.Data) {
			continue
		}
		doc := yamldoc.Parse(f.Display, document.Data, yamldoc.Options{Position: document.Position, Hide: true})
		d, declares := declare(f, doc, document.Data)
		d.broken = last && mayBeCut(doc, document.Data)
		switch {
		case more > 0 && (!declares || !d.Rule): // a governance document that is not in force closes the gate
			unsure = unsure || mayRule(doc, document.Data)
		case declares:
			resources++
			list = append(list, d)
		case d.warnsOfList():
			list = append(list, d)
		case !doc.Empty() && doc.Err() == nil && !doc.Has("apiVersion") && !doc.Has("kind"):
			d.Warnings = append(d.Warnings, doc.At("", "is ignored: this document has neither apiVersion: %s nor a kind", APIVersion))
			list = append(list, d)
		case doc.Err() != nil && !headLine().Match(document.Data): // it may be the rest of a resource
			d.broken = true
			list = append(list, d)
		case d.broken:
			list = append(list, d)
		}
	}
	if resources == 0 && !unsure {
		return slices.DeleteFunc(list, func(d *Declaration) bool { return !d.listed }), false, nil
	}
	closeBroken(list)
	if more > 0 {
		err = yamldoc.Faults{{File: f.Display, Line: more, Column: 1, Msg: fmt.Sprintf("a file may hold %d documents; this one and those below it are not read", maxDocuments)}}
	}
	return list, unsure, err
}

// closeBroken treats a part of a file that cannot be identified as a faulty governance document, if the file has a
// governance document. The part may be the beginning or the rest of one, as after an interrupted write.
func closeBroken(list []*Declaration) {
	if !slices.ContainsFunc(list, func(d *Declaration) bool { return !d.Rules.Empty() }) {
		return
	}
	for _, d := range list {
		if !d.broken || d.Rule {
			continue
		}
		is := "cannot be read, and may belong to"
		if d.Doc.Err() == nil {
			is = "is not whole, and may be the beginning of"
		}
		d.Rule, d.Warnings = true, nil
		d.Doc.FaultAt(1, 1, "this %s a governance document of the same file: every call is denied while it is there", is)
	}
}

// mayBeCut reports whether the last document of a file may be the beginning of a governance document, as when the
// machine stopped while the file was written: it says nothing yet, or not all of what it is.
func mayBeCut(doc *yamldoc.Doc, data []byte) bool {
	if doc.Err() != nil {
		at := kindLine().FindIndex(data)
		return at == nil || !bytes.ContainsRune(data[at[1]:], '\n') // the kind itself may be cut
	}
	if doc.Empty() {
		return string(bytes.TrimSpace(data)) == "---" // with a comment, somebody may have meant it
	}
	var kind string
	more := false
	for _, m := range doc.Members() {
		switch m.Key {
		case "kind":
			kind = m.Value
		case "apiVersion":
		default:
			more = true
		}
	}
	begins := func(rule string) bool { return strings.HasPrefix(rule, kind) }
	ends := !doc.Has("spec") || bytes.HasSuffix(data, []byte(kind))
	return kind == "" || !more || ends && slices.ContainsFunc(rules, begins)
}

// Declares reports whether a file declares resources, and all of them can be read. As far as that can be told,
// none is cut off.
func Declares(file string) bool {
	c, err := Loader{Stopped: func() error { return nil }}.Load(file, file)
	if err != nil || c.Data == nil || c.Late {
		return false
	}
	list, _, err := Parse(File{Display: file, Dir: filepath.Dir(file)}, c.Data)
	return err == nil && len(list) > 0 && !slices.ContainsFunc(list, func(d *Declaration) bool { return d.broken || d.listed || d.Doc.Err() != nil })
}

// ParseObject reads one custom resource of a cluster, as JSON. Nothing that it says has a line.
func ParseObject(f File, data []byte) *Declaration {
	f.cluster = true
	nowhere := func(int, int) (int, int) { return 0, 0 }
	doc := yamldoc.Parse(f.Display, data, yamldoc.Options{Position: nowhere, Hide: true})
	d, declares := declare(f, doc, data)
	if !declares {
		doc.Faultf("kind", "declares nothing for Orla: apiVersion must be %s", APIVersion)
	}
	return d
}

// readJSON reads a file that is to be JSON, and so holds one document.
func readJSON(f File, data []byte) (list []*Declaration, unsure bool, err error) {
	if !mayDeclare(data) {
		return nil, false, nil
	}
	doc := yamldoc.Parse(f.Display, data, yamldoc.Options{Hide: true})
	d, declares := declare(f, doc, data)
	err = yamldoc.NotJSON(f.Display, data) // the decoder takes more than JSON, other readers do not
	if declares && (err == nil || d.Rule) {
		return []*Declaration{d}, false, nil
	}
	unsure = err != nil && holdsWord(data, ruleWords) // in a comment above it may be anything
	if unsure {
		_, known := ruleInJSON(data)
		unsure = !known
	}
	switch {
	case declares || unsure:
		return nil, unsure, err
	case err == nil && d.warnsOfList():
		return []*Declaration{d}, false, nil
	}
	return nil, false, nil
}

// declare reads a document. It reports whether that declares something of ours,
// as its version or its kind says. The Declaration is never nil.
func declare(f File, doc *yamldoc.Doc, data []byte) (*Declaration, bool) {
	version, _ := doc.Text("apiVersion")
	kind, _ := doc.Text("kind")
	parsed := doc.Err() == nil
	if !parsed {
		version, kind = firstGroup(versionLine(), data), firstGroup(kindLine(), data)
	}
	ours := strings.HasPrefix(version, "orloj.dev/")
	rule := mayRule(doc, data)
	d := &Declaration{Description: keys.Description{Doc: doc}, File: f}
	if !ours && !slices.Contains(servedKinds, kind) && !rule {
		return d, false
	}
	if rule && parsed && version == APIVersion && slices.Contains(rules, kind) {
		d.readGovernance(kind)
		return d, true
	}
	if rule {
		doc.Reveal("spec.auth")
		d.readRule(kind, version, data)
		return d, true
	}
	if !ours && kind == kindSecret && version == "v1" {
		d.Warnings = append(d.Warnings, doc.At("apiVersion", "is ignored, as it is a Secret of Kubernetes; one for Orla has apiVersion: %s", APIVersion))
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

func (d *Declaration) checkVersion(version string) {
	switch {
	case !d.Doc.Has("apiVersion"):
		d.Doc.Faultf("apiVersion", "is required: %s", APIVersion)
	case version != APIVersion:
		d.Doc.Faultf("apiVersion", "wants %s, got %q", APIVersion, version)
	}
}

func (d *Declaration) unknownKind(kind string) {
	wants := "wants " + strings.Join(servedKinds[:len(servedKinds)-1], ", ") + " or " + servedKinds[len(servedKinds)-1]
	if !d.Doc.Has("kind") {
		d.Doc.Faultf("kind", "is required: it %s", wants)
		return
	}
	if near := yamldoc.Nearest(kind, servedKinds); near != "" {
		wants += fmt.Sprintf("; did you mean %q?", near)
	}
	d.Doc.Faultf("kind", "%s", wants)
}

// identify checks the metadata, which is the same for every kind, and keeps the namespace. It returns the name, or
// "" if it is not valid.
func (d *Declaration) identify(m metadataKeys) (name string) {
	if d.Doc.Has("metadata.name") && !manifest.ValidName(m.Name) {
		d.Doc.Faultf("metadata.name", "must be 1 to %d of A-Z a-z 0-9 _ . and -", manifest.MaxName)
		m.Name = ""
	}
	if !d.Doc.Has("metadata.namespace") {
		d.namespace = secret.DefaultNamespace
		return m.Name
	}
	d.faultIf("metadata.namespace", secret.CheckWord(m.Namespace))
	d.namespace = m.Namespace
	return m.Name
}

// hasSpec reports whether there is a spec to check. If not, only its absence is reported.
func (d *Declaration) hasSpec() bool {
	_, text := d.Doc.Text("spec")
	return d.Doc.Has("spec") && !text
}

// secretRef reads a reference to a secret.
func (d *Declaration) secretRef(key, text string) secret.Ref {
	ref, err := secret.ParseRef(text, d.namespace)
	d.faultIf(key, err)
	return ref
}

// faultIf adds an error as the fault of a key, if it is not nil.
func (d *Declaration) faultIf(key string, err error) {
	if err != nil {
		d.Doc.Faultf(key, "%v", err)
	}
}
