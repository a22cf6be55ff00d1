package documents_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/internal/testing/kubetest"
)

// documentsOf returns the documents of a part, with a key.
func documentsOf(t *testing.T, api http.RoundTripper, part string, key byte, log *slog.Logger) *documents.Documents {
	t.Helper()
	return documents.New(documents.Options{
		Client: kubetest.Client(t, api), Namespace: "ops", Group: "orla", Part: part, Log: log,
		Key: func(context.Context) (*replicas.Box, error) { return replicas.NewBox(bytes.Repeat([]byte{key}, 32)) },
	})
}

// serve follows documents with a key, and returns them with what was heard.
func serve(t *testing.T, api http.RoundTripper, part string, key byte) (*documents.Documents, *[]string) {
	t.Helper()
	d := documentsOf(t, api, part, key, slog.New(slog.DiscardHandler))
	return d, follow(t, d)
}

// follow follows documents until the test ends, and returns what was heard.
func follow(t *testing.T, d *documents.Documents) *[]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	heard, over := new([]string), make(chan struct{})
	go func() {
		defer close(over)
		d.Serve(ctx, func(one documents.Document) { *heard = append(*heard, one.Name+"="+string(one.Content)) }, func() {})
	}()
	t.Cleanup(func() { cancel(); <-over })
	synctest.Wait()
	return heard
}

// SPEC S1, P4: what a change costs does not depend on how many other documents there are.
func TestS1AChangeCostsNothingOfTheOthers(t *testing.T) {
	costtest.Check(t, 150, func(n int) func() {
		api := new(kubetest.Objects)
		d := documentsOf(t, api, "x", 1, slog.New(slog.DiscardHandler))
		heard, ready := make(chan documents.Document, 1), make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		var serving sync.WaitGroup
		serving.Go(func() {
			d.Serve(ctx, func(one documents.Document) {
				select {
				case heard <- one:
				case <-ctx.Done():
				}
			}, func() { close(ready) })
		})
		t.Cleanup(func() { cancel(); serving.Wait() })
		<-ready
		all := make([]documents.Document, n)
		change := func() {
			for i := range all {
				next := all[i].With("it", fmt.Append(nil, api.Writes()))
				put, err := d.Put(t.Context(), next)
				if errors.Is(err, documents.ErrConflict) { // what it had only made was taken for what a killed replica left
					put, err = d.Put(t.Context(), next)
				}
				if err != nil {
					t.Fatal(err)
				}
				all[i] = put
				for put.After(<-heard) { // it changed before
				}
			}
		}
		for i := range all {
			all[i].Name = fmt.Sprint(i)
		}
		change()
		return change
	})
}

// SPEC S2, P4: whoever writes many objects that do not count fills no log.
func TestS2LinesAboutStrangersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := new(kubetest.Objects), new(bytes.Buffer)
		d := documentsOf(t, api, "x", 1, slog.New(slog.NewTextHandler(log, nil)))
		follow(t, d)
		if _, err := d.Put(t.Context(), documents.Document{Name: "n"}.With("it", []byte("1"))); err != nil {
			t.Fatal(err)
		}
		lines := func() int { synctest.Wait(); return strings.Count(log.String(), "does not count") }
		forge := func() {
			for name := range api.All() {
				api.Set(name, map[string]any{"sealed": fmt.Sprint(api.Writes())})
				lines()
			}
		}
		for range 50 {
			forge()
		}
		if n := lines(); n != 10 {
			t.Errorf("%d lines", n)
		}
		time.Sleep(time.Minute)
		forge()
		if n := lines(); n != 11 || !strings.Contains(log.String(), "not_shown=40") {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

// SPEC P4: a document is replaced by who knows its last version, and by nobody else; all replicas of the group hear of it.
func TestP4OneWriteIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, _ := serve(t, api, "x", 1)
		b, heard := serve(t, api, "x", 1)
		_, other := serve(t, api, "x", 2)
		_, part := serve(t, api, "y", 1)
		doc := documents.Document{Name: "n"}
		first, err := a.Put(t.Context(), doc.With("it", []byte("1")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(t.Context(), doc.With("it", []byte("2"))); !errors.Is(err, documents.ErrConflict) {
			t.Errorf("made twice: %v", err)
		}
		got, err := b.Get(t.Context(), doc)
		if err != nil || string(got.Content) != "1" {
			t.Fatalf("%s %v", got.Content, err)
		}
		second, err := b.Put(t.Context(), got.With("it", []byte("3")))
		if err != nil || !second.After(first) {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := a.Put(t.Context(), first.With("it", []byte("4"))); !errors.Is(err, documents.ErrConflict) {
			t.Errorf("replaced an older version: %v", err)
		}
		if err := a.Remove(t.Context(), first); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := a.Remove(t.Context(), second); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if said := strings.Join(*heard, " "); said != "n=1 n=3 n=" && said != "n=3 n=" || len(*other)+len(*part) != 0 {
			t.Errorf("heard %s; with another key %q, of another part %q", said, *other, *part)
		}
		if _, err := a.Put(t.Context(), doc.With("it", make([]byte, documents.MaxContent+1))); !errors.Is(err, documents.ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
		large, err := a.Put(t.Context(), doc.With("it", bytes.Repeat([]byte("x"), documents.MaxContent)))
		if err != nil || len(large.Content) != documents.MaxContent {
			t.Errorf("as large as may be: %d %v", len(large.Content), err)
		}
	})
}

// SPEC P4: what was written to another object, or as another version, is not read.
func TestP4WhatWasCopiedIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, heard := serve(t, api, "x", 1)
		for _, name := range []string{"m", "n"} {
			if _, err := a.Put(t.Context(), documents.Document{Name: name}.With("it", []byte(name))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		*heard = nil
		all := api.All()
		for name := range all {
			for other, one := range all {
				if other != name {
					api.Set(name, one["spec"])
				}
			}
		}
		synctest.Wait()
		if len(*heard) != 0 {
			t.Errorf("heard %q", *heard)
		}
		if got, err := a.Get(t.Context(), documents.Document{Name: "n"}); err == nil || !strings.Contains(err.Error(), "kubectl delete") {
			t.Errorf("%s %v", got.Content, err)
		}
	})
}

// SPEC P4: no version comes back for who has no key, in the object that it was written to or in one that is made of it.
func TestP4NoVersionComesBackInANewObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, heard := serve(t, api, "x", 1)
		doc := documents.Document{Name: "n"}
		var copies []map[string]any
		for _, text := range []string{"1", "2", "3"} {
			written, err := a.Put(t.Context(), doc.With("it", []byte(text)))
			if err != nil {
				t.Fatal(err)
			}
			doc = written
			for _, one := range api.All() {
				copies = append(copies, one)
			}
		}
		client := kubetest.Client(t, api)
		for i, one := range copies {
			meta := one["metadata"].(map[string]any) //nolint:forcetypeassert // all have it
			name := meta["name"].(string)            //nolint:forcetypeassert // as above
			api.Delete(name)
			synctest.Wait()
			*heard = nil
			err := client.Do(t.Context(), kubeapi.Request{Method: http.MethodPost, Of: documents.Resource, Namespace: "ops", Body: kubeapi.Object{
				"metadata": kubeapi.Object{"name": name, "namespace": "ops", "labels": meta["labels"]}, "spec": one["spec"],
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range len(copies) { // through the generations
				synctest.Wait()
				if got, err := a.Get(t.Context(), doc); err == nil || len(*heard) != 0 {
					t.Errorf("version %d came back: %s, heard %q", i+1, got.Content, *heard)
				}
				api.Set(name, one["spec"])
			}
		}
	})
}

// SPEC P4: an object that was only made is not a document. A document that is put takes it, and a replica that starts removes it.
func TestP4AnEmptyObjectIsNoDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, heard := serve(t, api, "x", 1)
		doc := documents.Document{Name: "n"}
		api.Lose(1) // the answer to the first of the two writes
		if _, err := a.Put(t.Context(), doc.With("it", []byte("1"))); !errors.Is(err, documents.ErrUnsure) {
			t.Fatalf("put: %v", err)
		}
		time.Sleep(time.Minute)
		if len(api.All()) != 1 || len(*heard) != 0 {
			t.Fatalf("%d objects, heard %q", len(api.All()), *heard)
		}
		if _, err := a.Put(t.Context(), doc.With("it", []byte("2"))); !errors.Is(err, documents.ErrConflict) {
			t.Errorf("put again: %v", err)
		}
		got, err := a.Get(t.Context(), doc)
		if err != nil || got.Content != nil || got.Name != "n" {
			t.Fatalf("%+v %v", got, err)
		}
		full, err := a.Put(t.Context(), got.With("it", []byte("3")))
		if err != nil || !full.After(got) {
			t.Errorf("taken: %v", err)
		}
		synctest.Wait()
		if said := strings.Join(*heard, " "); said != "n=3" {
			t.Errorf("heard %s", said)
		}
		api.Lose(1)
		_, _ = a.Put(t.Context(), documents.Document{Name: "m"}.With("it", []byte("1")))
		time.Sleep(time.Minute)
		if len(api.All()) != 2 {
			t.Errorf("%d objects", len(api.All()))
		}
		serve(t, api, "x", 1)
		synctest.Wait()
		if len(api.All()) != 1 {
			t.Errorf("%d objects after a start", len(api.All()))
		}
	})
}

// dated answers with a date.
type dated struct{ at time.Time }

func (d dated) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: http.NoBody, Header: http.Header{"Date": {d.at.UTC().Format(http.TimeFormat)}}}, nil
}

// SPEC-TOOLS 8.7, P4: the time is that of the API server, unless the clocks agree as far as its dates can say.
func TestP4TheTimeIsThatOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(documents.Clock)
		for off, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute, -time.Hour: -time.Hour} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api", nil)
			resp, err := c.Wrap(dated{time.Now().Add(off)}).RoundTrip(req)
			if err != nil || resp == nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if got := time.Until(c.Now()) - want; got.Abs() > documents.Tolerance/2 {
				t.Errorf("a clock that is %s off is corrected by %s", off, got+want)
			}
		}
	})
}

// SPEC N2, P4: who hangs up before the API server has answered says nothing of the API server: others ask it at once.
func TestN2WhoHangsUpHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		d, _ := serve(t, api, "x", 1)
		made, err := d.Put(t.Context(), documents.Document{Name: "n"}.With("it", []byte("1")))
		if err != nil {
			t.Fatal(err)
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := d.Get(left, made); !errors.Is(err, documents.ErrUnsure) {
			t.Errorf("to who has hung up: %v", err)
		}
		if got, err := d.Get(t.Context(), made); err != nil || string(got.Content) != "1" {
			t.Errorf("to another one: %q, %v", got.Content, err)
		}
		api.Away(true)
		for range 2 {
			if _, err := d.Get(t.Context(), made); err == nil {
				t.Error("an API server that was away is asked again at once")
			}
			api.Away(false) // which is not asked so soon
		}
	})
}
