package discover

import (
	"bytes"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// Cluster is what is known of the custom resources of a cluster (SPEC P2). A document is read as one in a file of the
// folder Dir would be.
type Cluster struct {
	Dir       string // absolute: relative paths in documents are relative to it
	Documents []Document
	Problems  []manifest.Problem // why some are not known
}

// Document is one custom resource.
type Document struct {
	Source string // KIND/NAME
	Data   []byte // JSON; nil if Fault says why it is not known
	Fault  error
	Rule   bool // it is a governance document
}

// cluster reads the resources of a cluster. What is wrong with one of them is a problem of that one.
func (w *walker) cluster(c *Cluster) {
	if c == nil {
		return
	}
	for _, document := range c.Documents {
		if w.load.Stopped() != nil {
			return
		}
		if document.Data == nil {
			w.partly(document.Source, document.Rule, document.Fault)
			continue
		}
		w.declares(w.custom(c.Dir, document), document.Source+"#0")
	}
	w.leaveToServers()
	w.problems = append(w.problems, c.Problems...)
}

// custom reads a custom resource, or finds it among what an earlier search has read.
func (w *walker) custom(dir string, document Document) *declaration {
	before, known := w.known.documents[document.Source]
	if !known || before.dir != dir || !bytes.Equal(before.data, document.Data) {
		d := resource.ParseObject(resource.File{Display: document.Source, Dir: dir}, document.Data)
		if document.Rule && d.Doc.Err() != nil {
			d.Rule = true
		}
		before = seenDocument{dir, document.Data, declarationOf(d)}
	}
	if before.says.lasts() {
		w.keeps.documents[document.Source] = before
	}
	return before.says
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
