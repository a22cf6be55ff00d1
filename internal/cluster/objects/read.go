package objects

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

const (
	pageSize = 100
	pageTime = time.Minute // how long a page may take
	// watchTime is the shortest time of a watch; the longest is twice as long, so that not all end at once.
	watchTime = 5 * time.Minute

	maxStatus  = 64 << 10
	maxObjects = 20_000
	maxBytes   = 64 << 20 // of the documents of one resource
)

// bound drops the document if there are too many objects, or too many bytes, next to it.
func (o *Object) bound(objects, bytes int) {
	switch {
	case o.Document == nil:
		return
	case objects >= maxObjects:
		o.Fault = fmt.Errorf("is not read: there are more than %d of its kind in the namespace", maxObjects)
	case bytes+len(o.Document) > maxBytes:
		o.Fault = fmt.Errorf("is not read: the resources of its kind in the namespace have more than %d bytes", maxBytes)
	default:
		return
	}
	o.Document, o.size, o.sum = nil, 0, [sha256.Size]byte{}
}

// same reports whether two objects mean the same to Orla; their status may differ.
func (o *Object) same(other *Object) bool {
	return o.Name == other.Name && o.UID == other.UID && o.Generation == other.Generation && o.sum == other.sum
}

// keep has Options.Keep keep an object, unless that has kept the same of what the object was before; nil if there was none.
func (o *Objects) keep(one, before *Object) {
	if o.Keep == nil {
		return
	}
	if before != nil && before.same(one) {
		one.Name, one.UID, one.Kept = before.Name, before.UID, before.Kept
	} else {
		one.Kept = o.Keep(one)
	}
	one.Document = nil
}

// Read reads an object of the API.
func Read(raw []byte) (*Object, error) {
	var got struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name       string `json:"name"`
			Namespace  string `json:"namespace"`
			UID        string `json:"uid"`
			Version    string `json:"resourceVersion"`
			Generation int64  `json:"generation"`
		} `json:"metadata"`
		Spec   json.RawMessage `json:"spec,omitempty"`
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(raw, &got) != nil || got.Metadata.Name == "" {
		return nil, errors.New("the cluster lists something that is not an object")
	}
	one := &Object{Name: got.Metadata.Name, UID: got.Metadata.UID, Version: got.Metadata.Version, Generation: got.Metadata.Generation}
	if len(got.Status) <= maxStatus {
		one.Status = bytes.Clone(got.Status)
	}
	document := kubeapi.Object{
		"apiVersion": got.APIVersion, "kind": got.Kind,
		"metadata": kubeapi.Object{"name": got.Metadata.Name, "namespace": got.Metadata.Namespace},
	}
	if got.Spec != nil {
		document["spec"] = got.Spec
	}
	var err error
	if one.Document, err = json.Marshal(document); err != nil {
		return nil, errors.New("an object of the cluster cannot be encoded")
	}
	if size := len(one.Document); size > yamldoc.MaxFile {
		one.Document, one.Fault = nil, fmt.Errorf("has %d bytes, more than the %d allowed", size, yamldoc.MaxFile)
		return one, nil
	}
	one.size, one.sum = len(one.Document), sha256.Sum256(one.Document)
	return one, nil
}

func (o *Objects) request(query url.Values) kubeapi.Request {
	if o.Labels != "" {
		query.Set("labelSelector", o.Labels)
	}
	return kubeapi.Request{Method: http.MethodGet, Of: o.Of, Namespace: o.Namespace, Query: query}
}

// list lists the objects in pages, and returns the version that they have together.
func (o *Objects) list(ctx context.Context) (version string, err error) {
	listed, size := map[string]*Object{}, 0
	var status []byte // of the one before: many have the same
	for more := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if more != "" {
			query.Set("continue", more)
		}
		version, more, err = o.page(ctx, query, func(one *Object) {
			one.bound(len(listed), size)
			o.keep(one, o.Latest(one.Name))
			if bytes.Equal(one.Status, status) {
				one.Status = status
			}
			status = one.Status
			listed[one.Name] = one
			size += one.size
		})
		if err != nil {
			return "", o.explain(err)
		}
		if more == "" {
			o.replace(listed, size)
			return version, nil
		}
	}
}

// page reads one page of the list, one object after the other.
func (o *Objects) page(ctx context.Context, query url.Values, each func(*Object)) (version, more string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	body, err := o.Client.Stream(ctx, o.request(query))
	if err != nil {
		return "", "", err
	}
	defer func() { _ = body.Close() }() // it was only read
	meta, err := readList(body, func(raw json.RawMessage) error {
		one, err := Read(raw)
		if err == nil {
			each(one)
		}
		return err
	})
	if err == nil && meta.Version == "" {
		err = errors.New("the cluster's list has no resourceVersion")
	}
	return meta.Version, meta.Continue, err
}

type listMeta struct {
	Version  string `json:"resourceVersion"`
	Continue string `json:"continue"`
}

// readList reads a list without having all of it in memory. Its error does not quote it.
func readList(body io.Reader, each func(json.RawMessage) error) (meta listMeta, err error) {
	broken := errors.New("the cluster's list is not complete or not a list")
	decoder := json.NewDecoder(body)
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return meta, broken
	}
	for decoder.More() {
		key, err := decoder.Token()
		switch {
		case err != nil:
			return meta, broken
		case key == "items":
			if err := readItems(decoder, each, broken); err != nil {
				return meta, err
			}
		case key == "metadata":
			if decoder.Decode(&meta) != nil {
				return meta, broken
			}
		default:
			var skipped json.RawMessage
			if decoder.Decode(&skipped) != nil {
				return meta, broken
			}
		}
	}
	if _, err := decoder.Token(); err != nil {
		return meta, broken
	}
	return meta, nil
}

func readItems(decoder *json.Decoder, each func(json.RawMessage) error, broken error) error {
	token, err := decoder.Token()
	if err != nil || token != json.Delim('[') {
		if token == nil && err == nil { // null
			return nil
		}
		return broken
	}
	for decoder.More() {
		var item json.RawMessage
		if decoder.Decode(&item) != nil {
			return broken
		}
		if err := each(item); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return broken
	}
	return nil
}

// watch follows the changes after *version, and sets it to the last one that it has seen; to "" if the objects have to be
// listed again. A watch that ends is not an error.
func (o *Objects) watch(ctx context.Context, version *string) error {
	lasts := watchTime + rand.N(watchTime) //nolint:gosec // it spreads requests and protects nothing
	ctx, cancel := context.WithTimeout(ctx, lasts+pageTime)
	defer cancel()
	body, err := o.Client.Stream(ctx, o.request(url.Values{
		"watch": {"true"}, "resourceVersion": {*version}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(lasts / time.Second))},
	}))
	if kubeapi.Means(err, http.StatusGone, "Expired") {
		*version = ""
		return nil
	}
	if err != nil {
		return o.explain(err)
	}
	defer func() { _ = body.Close() }() // it was only read
	o.report(nil)
	var failed error
	kubeapi.Events(body, func(event kubeapi.Event) (more bool) {
		failed = o.follow(event, version)
		return failed == nil && *version != ""
	})
	return failed
}

// follow applies one change.
func (o *Objects) follow(event kubeapi.Event, version *string) error {
	switch event.Type {
	case "ADDED", "MODIFIED", "DELETED":
		one, err := Read(event.Object)
		if err != nil {
			*version = ""
			return err
		}
		*version = one.Version
		if event.Type == "DELETED" {
			o.remove(one.Name)
		} else {
			o.put(one)
		}
		return nil
	case "BOOKMARK":
		var mark struct {
			Metadata listMeta `json:"metadata"`
		}
		if json.Unmarshal(event.Object, &mark) == nil && mark.Metadata.Version != "" {
			*version = mark.Metadata.Version
		}
		return nil
	}
	*version = "" // such as ERROR with 410: what was missed is not known
	return nil
}

// explain says what to do about an error of a list or a watch.
func (o *Objects) explain(err error) error { return Explain(err, o.Of, o.Namespace, "list and watch") }

// Explain says what to do about an error of the API, for which Orla has to be allowed some verbs.
func Explain(err error, of kubeapi.Resource, namespace, verbs string) error {
	said, ok := errors.AsType[*kubeapi.StatusError](err)
	switch {
	case !ok:
		return err
	case said.Means(http.StatusForbidden, "Forbidden"):
		return fmt.Errorf("%w; let Orla's service account %s %s in the namespace %s", err, verbs, of.Name, namespace)
	case said.Code == http.StatusNotFound:
		return fmt.Errorf("the cluster has no %s of %s (%w); install them: orla schema crds | kubectl apply -f -", of.Name, of.APIVersion(), err)
	}
	return err
}
