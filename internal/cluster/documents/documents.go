// Package documents keeps documents that all replicas of a group have in common (SPEC P4; docs/decisions/0054): each is
// an object of the API server, sealed with the key of the group. A document is replaced only by who knows its last
// version, so that of several replicas one is first.
//
// Its invariant: what is read was written by a replica of the group, to this object and as this version of it. Who may
// write objects, and is not a replica, can remove documents, and cannot make, change or bring back one. A document whose object
// they changed is not read, and not replaced either until somebody deletes the object.
package documents

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/objects"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/observe/brief"
)

// Resource is the kind of the objects.
var Resource = kubeapi.Resource{Group: "orloj.dev", Version: "v1", Name: "replicarecords"}

// MaxContent bounds a document, in bytes. Its object has a third more, which is below the 1 MiB that is read of an object
// and the 1.5 MiB that etcd takes.
const MaxContent = 760 << 10

// patience is how long the API server may take for an answer.
const patience = 3 * time.Second

var (
	// ErrConflict is for a document that is not the one that it was. Get returns what it is.
	ErrConflict = errors.New("another replica was faster")
	// ErrUnsure is in the chain of the error of a Put that may have been done.
	ErrUnsure = errors.New("the API server has not answered")
	// ErrTooLarge is for a document of more than MaxContent bytes.
	ErrTooLarge = fmt.Errorf("it has more than %d bytes", MaxContent)
)

// Options say which documents. All fields but Now are required.
type Options struct {
	Client    *kubeapi.Client
	Namespace string
	Group     string                                           // of replicas
	Part      string                                           // what the documents are about: one word
	Key       func(ctx context.Context) (*replicas.Box, error) // tries for as long as ctx allows
	Now       func() time.Time                                 // the time of the API server; nil for that of this machine
	Log       *slog.Logger
}

// Document is a document as it was at a time.
type Document struct {
	Name    string
	About   string // for people who look at the object; not sealed
	Content []byte // nil if there is no such document
	// Owner is what the API server removes the document with; zero for nothing. It is not read: each Put needs it again.
	Owner Owner
	version
}

// Owner is a Lease.
type Owner struct{ Name, UID string }

// version is which one it is of an object, and of which.
type version struct {
	uid        string
	resource   uint64
	generation int64
}

// After reports whether a document is a later version than another one of its name.
func (d Document) After(other Document) bool { return d.resource > other.resource }

// Same reports whether two documents of a name are versions of one: it was not removed and made again between them.
func (d Document) Same(other Document) bool { return d.uid == other.uid }

// With returns a document whose Put replaces d.
func (d Document) With(about string, content []byte) Document {
	d.About, d.Content = about, content
	return d
}

// Documents are the documents of one part. Its methods may be called from any goroutine.
type Documents struct {
	opts    Options
	objects *objects.Objects
	changed chan struct{}
	spare   brief.Limiter // of the log

	mu     sync.Mutex // guards the fields that follow
	box    *replicas.Box
	names  [32]byte  // the key of the names of objects
	failed time.Time // when the API server has not answered
	why    error
}

// New returns the documents of a part. It sends nothing; Serve does.
func New(o Options) *Documents {
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Documents{opts: o, changed: make(chan struct{}, 1)}
	d.objects = objects.New(objects.Options{
		Client: o.Client, Of: Resource, Namespace: o.Namespace, Changed: d.changed, Note: true, Log: o.Log,
		Labels: "orla.dev/replicas=" + o.Group + ",orla.dev/part=" + o.Part,
	})
	return d
}

// Now returns the time of the API server, as far as it is known.
func (d *Documents) Now() time.Time { return d.opts.Now() }

// Serve follows the documents until ctx ends. It calls each with every document that is new, has changed or is gone,
// and ready once, when it was called for all that there were.
func (d *Documents) Serve(ctx context.Context, each func(Document), ready func()) {
	if err := d.Unlock(ctx); err != nil {
		if ctx.Err() == nil {
			d.opts.Log.Error("what the replicas have in common cannot be read", "part", d.opts.Part, "err", err)
		}
		<-ctx.Done()
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		defer recovered.To(d.opts.Log, "follow documents", nil)
		d.objects.Serve(ctx)
	})
	last := map[string]Document{} // by the names of objects
	for {
		select {
		case <-d.changed:
		case <-ctx.Done():
			return
		}
		if d.tell(last, each) && ready != nil {
			ready()
			ready = nil
			work.Go(func() {
				defer recovered.To(d.opts.Log, "remove empty objects", nil)
				d.tidy(ctx)
			})
		}
	}
}

// Unlock gets the key of the documents. Serve does that itself. It is for who follows none, and knows the names of those
// that it gets and puts.
func (d *Documents) Unlock(ctx context.Context) error {
	box, err := d.opts.Key(ctx)
	if err != nil {
		return err
	}
	key := box.Key("documents of " + d.opts.Part)
	if box, err = replicas.NewBox(key[:]); err != nil { // only for a key of another size
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.box, d.names = box, box.Key("names")
	return nil
}

// tell calls each with what differs from last. It reports whether anything is known.
func (d *Documents) tell(last map[string]Document, each func(Document)) bool {
	changed, gone, err := d.objects.Changes()
	if err != nil {
		return false
	}
	for _, o := range changed {
		before, known := last[o.Name]
		if known && before.uid == o.UID && before.resource == number(o.Version) {
			continue
		}
		now, err := d.open(o)
		if err != nil {
			if shown, left := d.spare.Allow(maxLines); shown {
				d.opts.Log.Warn("a document of the replicas does not count", "part", d.opts.Part, "object", o.Name, "err", err, "not_shown", left)
			}
			last[o.Name] = Document{version: versionOf(o)}
			continue
		}
		last[o.Name] = now
		if now.Content != nil {
			each(now)
		} else if before.Name != "" { // it was removed, and is being made again
			before.Content = nil
			each(before)
		}
	}
	for _, name := range gone {
		before := last[name]
		delete(last, name)
		if before.Name != "" {
			before.Content = nil
			each(before)
		}
	}
	return true
}

// maxLines is how many lines about documents that do not count are logged in a minute: whoever writes objects makes them.
const maxLines = 10

// Err returns why the documents may be out of date, or could not be read yet; nil if neither is so.
func (d *Documents) Err() error { return d.objects.Err() }

func versionOf(o *objects.Object) version { return version{o.UID, number(o.Version), o.Generation} }

// number reads a resourceVersion: a number, which grows with each change.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // 0 is older than all
	return n
}

func (d *Documents) nameOf(name string) (object string, box *replicas.Box, _ error) {
	d.mu.Lock()
	box, key := d.box, d.names
	d.mu.Unlock()
	if box == nil {
		return "", nil, errors.New("the API server has not told the key of the replicas yet")
	}
	mac := hmac.New(sha256.New, key[:])
	_, _ = mac.Write([]byte(name)) // a hash has no errors
	return d.opts.Group + "-" + d.opts.Part + "-" + hex.EncodeToString(mac.Sum(nil)[:16]), box, nil
}

// Get returns a document as the API server has it now. known is what is known of it.
func (d *Documents) Get(ctx context.Context, known Document) (Document, error) {
	object, _, err := d.nameOf(known.Name)
	if err != nil {
		return Document{}, err
	}
	var got json.RawMessage
	err = d.do(ctx, kubeapi.Request{Method: http.MethodGet, Name: object}, &got)
	switch {
	case kubeapi.IsNotFound(err):
		return Document{Name: known.Name, version: version{resource: known.resource}}, nil
	case err != nil:
		return Document{}, err
	}
	o, err := objects.Read(got)
	if err != nil {
		return Document{}, err
	}
	now, err := d.open(o)
	if err == nil && now.Content == nil {
		now.Name = known.Name
	}
	return now, err
}

// Put makes a document, or replaces the version that it is With. It returns the new version. A new document is two writes:
// an empty object, then its content. So all that is sealed names the uid, and is good for no object that is made later.
func (d *Documents) Put(ctx context.Context, doc Document) (Document, error) {
	if len(doc.Content) > MaxContent {
		return Document{}, ErrTooLarge
	}
	object, box, err := d.nameOf(doc.Name)
	if err != nil {
		return Document{}, err
	}
	if doc.uid == "" { // the seal needs the uid
		made, err := d.write(ctx, object, doc, "")
		if err != nil {
			return Document{}, err
		}
		doc.version = made.version
	}
	next := version{uid: doc.uid, generation: doc.generation + 1}
	return d.write(ctx, object, doc, box.Seal(append([]byte(header(doc.Name, next)), doc.Content...)))
}

// write makes the object of a document, or replaces the version that it is With.
func (d *Documents) write(ctx context.Context, object string, doc Document, sealed string) (Document, error) {
	meta := kubeapi.Object{
		"name": object, "namespace": d.opts.Namespace,
		"labels": kubeapi.Object{"orla.dev/replicas": d.opts.Group, "orla.dev/part": d.opts.Part},
	}
	ask := kubeapi.Request{Method: http.MethodPost}
	if doc.uid != "" {
		ask.Method, ask.Name = http.MethodPut, object
		meta["uid"], meta["resourceVersion"] = doc.uid, strconv.FormatUint(doc.resource, 10)
	}
	if doc.Owner.UID != "" {
		meta["ownerReferences"] = []any{kubeapi.Object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": doc.Owner.Name, "uid": doc.Owner.UID}}
	}
	ask.Body = kubeapi.Object{
		"apiVersion": Resource.APIVersion(), "kind": "ReplicaRecord", "metadata": meta,
		"spec": kubeapi.Object{"about": doc.About, "sealed": sealed},
	}
	var got json.RawMessage
	err := d.do(ctx, ask, &got)
	switch {
	case kubeapi.IsConflict(err), kubeapi.Exists(err),
		doc.uid != "" && kubeapi.IsNotFound(err):
		return Document{}, ErrConflict
	case err != nil:
		return Document{}, err
	}
	o, err := objects.Read(got)
	if err != nil {
		return Document{}, fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	return d.open(o)
}

// Remove removes a document, unless it is another version by now.
func (d *Documents) Remove(ctx context.Context, doc Document) error {
	object, _, err := d.nameOf(doc.Name)
	if err != nil {
		return err
	}
	return d.remove(ctx, object, doc.version)
}

func (d *Documents) remove(ctx context.Context, object string, of version) error {
	err := d.do(ctx, kubeapi.Request{Method: http.MethodDelete, Name: object, Body: kubeapi.Object{
		"preconditions": kubeapi.Object{"uid": of.uid, "resourceVersion": strconv.FormatUint(of.resource, 10)},
	}}, nil)
	if kubeapi.IsConflict(err) || kubeapi.IsNotFound(err) {
		return nil
	}
	return err
}

// tidy removes the objects that were only made, since a replica was killed or got no answer then. A replica that is about to
// write the content of one makes it again.
func (d *Documents) tidy(ctx context.Context) {
	all, _ := d.objects.All() // they were listed
	for _, o := range all {
		if o.Generation != 1 {
			continue
		}
		empty, err := d.open(o)
		if err != nil || empty.Content != nil {
			continue
		}
		if err := d.remove(ctx, o.Name, empty.version); err != nil {
			d.opts.Log.Debug("an empty object stays until the next start", "object", o.Name, "err", err)
			return
		}
	}
}

// header is what begins the sealed text: it is good for one version of one document.
func header(name string, of version) string {
	return fmt.Sprintf("%q %s %d\n", name, of.uid, of.generation)
}

var errAway = errors.New("the API server was away just now")

// again is how long the API server is not asked after it has not answered, so that those who wait for each other do
// not all wait for it.
const again = time.Second

// do makes a request.
func (d *Documents) do(ctx context.Context, ask kubeapi.Request, into any) error {
	d.mu.Lock()
	why, failed := d.why, d.failed
	d.mu.Unlock()
	if why != nil && time.Since(failed) < again {
		return why
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ask.Of, ask.Namespace = Resource, d.opts.Namespace
	err := d.opts.Client.Do(bounded, ask, into)
	said, is := errors.AsType[*kubeapi.StatusError](err)
	why = nil
	switch {
	case err == nil, is && said.Code < http.StatusInternalServerError:
	case is:
		err = fmt.Errorf("%w as it should: %w", ErrUnsure, err)
	case errors.Is(ctx.Err(), context.Canceled): // whoever asked has left, which says nothing of the API server
		return fmt.Errorf("%w: %w", ErrUnsure, err)
	default:
		why = fmt.Errorf("%w: %w", errAway, err)
		err = fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	d.mu.Lock()
	d.why, d.failed = why, time.Now()
	d.mu.Unlock()
	if is && said.Code == http.StatusNotFound && ask.Method != http.MethodPost {
		return err // of one document
	}
	return objects.Explain(err, Resource, d.opts.Namespace, "get, list, watch, create, update and delete")
}

// open reads a document from its object. One of an object that was only made has no content and no name.
func (d *Documents) open(o *objects.Object) (Document, error) {
	var got struct {
		Spec struct {
			About  string `json:"about"`
			Sealed string `json:"sealed"`
		} `json:"spec"`
	}
	if o.Fault != nil {
		return Document{}, o.Fault
	}
	if err := json.Unmarshal(o.Document, &got); err != nil {
		return Document{}, errors.New("it is not a document")
	}
	if got.Spec.Sealed == "" && o.Generation == 1 {
		return Document{version: versionOf(o)}, nil
	}
	d.mu.Lock()
	box := d.box
	d.mu.Unlock()
	text, _ := box.Open(got.Spec.Sealed)
	head, content, _ := strings.Cut(string(text), "\n")
	doc := Document{About: got.Spec.About, Content: []byte(content), version: versionOf(o)}
	if quoted, err := strconv.QuotedPrefix(head); err == nil {
		doc.Name, _ = strconv.Unquote(quoted) // it was quoted
	}
	if head+"\n" != header(doc.Name, doc.version) {
		return Document{}, fmt.Errorf("it is not what a replica of the group %s has written; delete it: kubectl delete %s %s", d.opts.Group, Resource.Name, o.Name)
	}
	if object, _, err := d.nameOf(doc.Name); err != nil || object != o.Name {
		return Document{}, fmt.Errorf("it is the copy of another document; delete it: kubectl delete %s %s", Resource.Name, o.Name)
	}
	return doc, nil
}
