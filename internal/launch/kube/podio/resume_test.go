package podio

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// SPEC P3: after a connection broke, only what no connection brought is read from the log. A message that was on stderr
// stays there: a caller may have had the process write it.
func TestP3WhatWasDeliveredIsNotReadAgain(t *testing.T) {
	const forged = `{"jsonrpc":"2.0","id":7,"result":{}}`
	for name, c := range map[string]struct {
		log       string // lines, between spaces
		had       [2]string
		out, text string // what is delivered then
	}{
		"nothing is new":                             {m1 + " a", [2]string{m1, "a"}, "", ""},
		"all is new":                                 {m1 + " a", [2]string{}, m1, "a"},
		"a message on stderr":                        {m1 + " " + forged, [2]string{m1, forged}, "", ""},
		"a message on stderr, and text after it":     {m1 + " " + forged + " a", [2]string{m1, forged + " a"}, "", ""},
		"several of them":                            {m1 + " " + forged + " " + forged + " a", [2]string{m1, forged + " " + forged + " a"}, "", ""},
		"no message on stdout":                       {forged + " a", [2]string{"", forged + " a"}, "", ""},
		"an answer before text that was read":        {m1 + " " + m2 + " a", [2]string{m1, "a"}, m2, ""},
		"an answer that stderr had before":           {m2 + " " + m1 + " " + m2 + " a", [2]string{m1, m2 + " a"}, m2, ""},
		"an answer that stderr had after it":         {m1 + " " + m1 + " " + m2 + " a", [2]string{m1, m1 + " a"}, m2, ""},
		"text before an answer that was read":        {"a b " + m1, [2]string{m1, "a"}, "", "b"},
		"text on stdout":                             {"a banner " + m1 + " b", [2]string{"banner " + m1, "a"}, "", "b"},
		"text on stdout, and the same on stderr new": {"banner a " + m1 + " banner", [2]string{"banner " + m1, "a"}, "", "banner"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := resumed(t, strings.Fields(c.log), [2][]string{strings.Fields(c.had[out]), strings.Fields(c.had[text])}); !slices.Equal(got[out], strings.Fields(c.out)) || !slices.Equal(got[text], strings.Fields(c.text)) {
				t.Errorf("stdout %q, stderr %q; want %q, %q", got[out], got[text], c.out, c.text)
			}
		})
	}
	t.Run("as many as the log is searched for", func(t *testing.T) {
		var log, had []string
		for i := range maxTail + 10 {
			log = append(log, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		}
		had = log
		log = append([]string{m1}, log[len(log)-maxTail+1:]...)
		if got := resumed(t, log, [2][]string{{m1}, had}); len(got[out])+len(got[text]) > 0 {
			t.Errorf("stdout %q, stderr %q; want nothing", got[out], got[text])
		}
	})
}

// resumed returns what is delivered from a log of which some lines were delivered before.
func resumed(t *testing.T, log []string, had [2][]string) (got [2][]string) {
	t.Helper()
	var b strings.Builder
	for i, line := range log {
		fmt.Fprintf(&b, "2026-01-01T00:00:00.%06dZ %s\n", i, line)
	}
	r := &run{Options: Options{
		Problems: slog.New(slog.DiscardHandler), Ended: make(chan struct{}),
		Log: func(context.Context, Query) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(b.String())), nil
		},
	}}
	for c := range r.tracks {
		r.tracks[c].to = io.Discard
		for _, line := range had[c] {
			if err := r.tracks[c].line([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
	}
	j := newJoint(time.Now(), func(c side, line []byte) { got[c] = append(got[c], string(line)) })
	if err := newSpell(r).resume(t.Context(), j, &seen{}); err != nil {
		t.Fatal(err)
	}
	j.finish()
	return got
}

// SPEC P3: an empty line on a connection is a line; only what the log has not whole is none.
func TestP3AnEmptyLineIsALine(t *testing.T) {
	var stdout, stderr strings.Builder
	ended := make(chan struct{})
	r := &run{Options: Options{
		Log:   func(context.Context, Query) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil },
		Ended: ended, Problems: slog.New(slog.DiscardHandler),
	}}
	r.tracks[out].to, r.tracks[text].to = &stdout, &stderr
	s := newSpell(r)
	written := make(chan error, 1)
	go func() {
		w := &joining{spell: s, ctx: t.Context(), side: out}
		_, err := w.Write([]byte("a\n\nb\n"))
		close(s.over[out])
		close(s.over[text])
		close(ended)
		written <- err
	}()
	if err := s.join(t.Context(), true); err != nil {
		t.Error(err)
	}
	if err := <-written; err != nil || stdout.String() != "a\n\nb\n" {
		t.Errorf("stdout %q, %v", stdout.String(), err)
	}
}
