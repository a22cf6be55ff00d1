package discover

import (
	"sync"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// Cluster is what is known of the custom resources of a cluster (SPEC P2).
type Cluster struct {
	Documents []*Document
	Problems  []manifest.Problem // why some are not known
}

// Document is one custom resource. It is read as one in a file of the folder Dir would be. Several searches may use it at once.
type Document struct {
	Source string // KIND/NAME
	Dir    string // absolute: relative paths in it are relative to it
	Rule   bool   // it is a governance document
	Fault  error  // why its text is not known

	mu   sync.Mutex // guards the fields that follow
	text []byte     // JSON; nil if there is a Fault, or says is known
	says *compact   // nil if it has to be read
}

// Set sets the text, as JSON. It is called before the Document is used, and keeps the text until what it declares is remembered in
// its place.
func (d *Document) Set(text []byte) { d.text = text }

// cluster reads the resources of a cluster. What is wrong with one of them is a problem of that one.
func (w *walker) cluster(c *Cluster) {
	if c == nil {
		return
	}
	for _, document := range c.Documents {
		if w.load.Stopped() != nil {
			return
		}
		if document.Fault != nil {
			w.partly(document.Source, document.Rule, document.Fault)
			continue
		}
		w.declares(document.read(), document.Source+"#0")
	}
	w.leaveToServers()
	w.problems = append(w.problems, c.Problems...)
}

// read reads the document, unless it is remembered what it declares.
func (d *Document) read() *declaration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.says != nil {
		return d.says.declaration()
	}
	read := resource.ParseObject(resource.File{Display: d.Source, Dir: d.Dir}, d.text)
	if d.Rule && read.Doc.Err() != nil {
		read.Rule = true
	}
	says := declarationOf(read)
	if says.lasts() {
		d.says, d.text = compactOf(says), nil
	}
	return says
}

// lasts reports whether the same document says the same again: what it says does not depend on files of this machine.
func (d *declaration) lasts() bool {
	t := &d.tool
	switch {
	case d.err != nil, d.rule, d.secret.Data != nil:
		return false
	case t.Kind == manifest.Cli, t.Kind == manifest.Wasm:
		return false
	case t.Kind == manifest.Capsule:
		return t.Runtime.Remote != nil
	}
	return true
}
