package pins

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/documents"
)

// common keeps pins where all replicas have them (SPEC P4; docs/decisions/0054): a document for each provider, which is
// named as its manifest is. A change names the version that it replaces. So one replica accepts the first list, and the
// others compare with that.
type common struct {
	docs  *documents.Documents
	end   context.CancelFunc
	work  sync.WaitGroup
	began time.Time
	ready chan struct{} // closed when known is complete

	mu    sync.Mutex // guards known
	known map[string]documents.Document
}

// tries is how often a change is tried that other replicas prevent.
const tries = 8

// Share makes the Store keep its pins where all replicas have them, until Close. It is called before the first Of. review
// is called with the name of each provider whose lists have to be compared again.
func (s *Store) Share(docs *documents.Documents, review func(provider string)) {
	ctx, end := context.WithCancel(context.Background())
	c := &common{docs: docs, end: end, began: time.Now(), ready: make(chan struct{}), known: map[string]documents.Document{}}
	s.common = c
	c.work.Go(func() {
		defer recovered.To(s.log, "follow the pins of all replicas", nil)
		docs.Serve(ctx, func(d documents.Document) {
			if c.take(d) && c.isReady() {
				review(d.Name)
			}
		}, func() {
			close(c.ready)
			for _, p := range s.providers() {
				review(p.name)
			}
		})
	})
}

// Close ends what Share has begun.
func (s *Store) Close() {
	if s != nil && s.common != nil {
		s.common.end()
		s.common.work.Wait()
	}
}

// keeps reports whether pins outlive the process.
func (s *Store) keeps() bool { return s.dir != "" || s.common != nil }

func (c *common) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// take notes a document, unless it is an older one. It reports whether that is news.
func (c *common) take(d documents.Document) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.known[d.Name]
	switch {
	case d.Content == nil && d.Same(before):
		delete(c.known, d.Name)
	case d.Content == nil || !d.After(before):
		return false
	default:
		c.known[d.Name] = d
	}
	return true
}

// document returns what is known of a provider. Soon after the start it waits for that.
func (c *common) document(provider string) (documents.Document, error) {
	late := time.NewTimer(time.Until(c.began.Add(lockWait)))
	defer late.Stop()
	select {
	case <-c.ready:
	case <-late.C:
	}
	if !c.isReady() {
		if err := c.docs.Err(); err != nil {
			return documents.Document{}, fmt.Errorf("the API server of the cluster, which has it for all replicas, cannot be asked: %w", err)
		}
		return documents.Document{}, errors.New("the API server of the cluster, which has it for all replicas, has not told it yet")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[provider]
	d.Name = provider
	return d, nil
}

// read returns what is accepted of a provider. The error of nothing is fs.ErrNotExist.
func (c *common) read(provider string) (*file, error) {
	d, err := c.document(provider)
	if err != nil {
		return nil, err
	}
	return unpack(d)
}

// unpack reads a document.
func unpack(d documents.Document) (*file, error) {
	if d.Content == nil {
		return nil, fs.ErrNotExist
	}
	in, err := gzip.NewReader(bytes.NewReader(d.Content))
	if err != nil {
		return nil, err
	}
	return decodeFile(in)
}

// pack returns a file as it is kept. Definitions that make it too large are left out: digests say what is accepted.
func (f *file) pack(listed map[item]*listedItem) ([]byte, error) {
	for {
		raw, err := f.encode(listed)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		_, _ = zip.Write(raw) // a buffer takes all
		_ = zip.Close()       // as above
		if out.Len() <= documents.MaxContent {
			return out.Bytes(), nil
		}
		left := false
		f.each(func(i item, k kept) {
			left = left || k.Definition != nil
			k.Definition = nil
			f.of(i.kind)[i.name] = k
		})
		if !left {
			return nil, documents.ErrTooLarge
		}
	}
}

// refreshCommon is refresh with what all replicas have.
func (p *Provider) refreshCommon() {
	d, err := p.store.common.document(p.name)
	switch {
	case err != nil:
		p.unread = true
		p.fail(fmt.Errorf("%s cannot be read: %w", p.path, err))
		return
	case d.Content == nil:
		if p.unread { // it can be read, and there is nothing
			p.trouble, p.unread, p.held = nil, false, nil
		}
		p.common = d
		return // what was accepted stays so while Orla runs
	case !d.After(p.common):
		return
	}
	f, err := unpack(d)
	p.common = d
	if err != nil {
		p.unread = true
		p.fail(fmt.Errorf("%s cannot be read: %w", p.path, err))
		return
	}
	p.adopt(f)
}

// changeCommon is change with what all replicas have.
//
//nolint:contextcheck,nolintlint // what is written has its own bound
func (p *Provider) changeCommon(replace bool, edit func(*file)) (*file, error) {
	c := p.store.common
	d, err := c.document(p.name)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // it has a bound, and is not given up
	for range tries {
		f, err := unpack(d)
		if errors.Is(err, fs.ErrNotExist) || err != nil && replace {
			f, err = &file{}, nil
		}
		if err != nil {
			return nil, err
		}
		p.edit(f, edit)
		raw, err := f.pack(p.listed)
		if err != nil {
			return nil, err
		}
		written, err := c.docs.Put(ctx, d.With("pins of "+p.name, raw))
		if err == nil {
			c.take(written)
			p.common = written
			return f, nil
		}
		if !errors.Is(err, documents.ErrConflict) {
			return nil, err
		}
		if d, err = c.docs.Get(ctx, d); err != nil {
			return nil, err
		}
		c.take(d)
	}
	return nil, documents.ErrConflict
}
