package daemon

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
)

// Lines implements control.Backend. The lines of a capsule include the calls of its tools. With Since, lines that are
// not kept any more come from log_file or the journal.
func (o operations) Lines(ctx context.Context, q control.Query) (iter.Seq2[json.RawMessage, int], error) {
	asked := history.Query{Last: q.Last, Since: q.Since, Events: q.Events, Keep: q.Wants(), Pace: q.Pace}
	for _, tool := range q.Tools {
		names := o.speakers(tool)
		if len(names) == 0 {
			return nil, o.unknown(tool)
		}
		asked.Tools = append(asked.Tools, names...)
	}
	older := o.older(q)
	if !q.Follow {
		return func(yield func(json.RawMessage, int) bool) {
			for line := range o.past(ctx, older, asked) {
				if !yield(line.JSON, 0) {
					return
				}
			}
		}, nil
	}
	asked.Also = func(tool string) bool { return slices.Contains(q.Tools, o.Supervisor.Catalog().Of(tool)) } // looked up each time: it may offer more later
	if older != nil {
		asked.Last = 0
		whole := asked
		asked.Past = func(kept []history.Line) iter.Seq[history.Line] {
			return older(ctx, whole, q.Last, kept)
		}
	}
	return func(yield func(json.RawMessage, int) bool) {
		for line, dropped := range o.log.History().Follow(ctx, asked) {
			if !yield(line.JSON, dropped) {
				return
			}
		}
	}, nil
}

// reader reads lines of the log that are not kept any more: logging.ReadBack of a file, or logging.ReadJournal.
type reader func(ctx context.Context, q history.Query, last int, kept []history.Line) iter.Seq[history.Line]

// older returns what reads the older lines that a query wants; nil if it wants none, or the log goes elsewhere.
func (o operations) older(q control.Query) reader {
	cfg := o.current()
	path := config.Absolute(cfg.LogFile)
	switch {
	case q.Since.IsZero() || q.Last < 0:
		return nil
	case cfg.LogFormat == logging.JSON && path != "":
		return func(ctx context.Context, q history.Query, last int, kept []history.Line) iter.Seq[history.Line] {
			return logging.ReadBack(ctx, path, q, last, kept)
		}
	case cfg.LogFormat == logging.Journal, cfg.LogFormat == logging.JSON && systemd.StderrIsJournal():
		return logging.ReadJournal
	}
	return nil
}

// past returns the lines of the past that a query selects; older ones are from where the log goes, if that can be read.
func (o operations) past(ctx context.Context, older reader, q history.Query) iter.Seq[history.Line] {
	if older == nil {
		return slices.Values(o.log.History().Last(q))
	}
	last := q.Last
	q.Last = 0
	return older(ctx, q, last, o.log.History().Last(q))
}

// speakers returns the names that lines of the log have for a tool: those of a manifest and of its
// tools, or that of a tool that existed earlier.
func (o operations) speakers(name string) []string {
	for _, one := range o.Supervisor.Manifests() {
		listed := peer.NamesOf(one.Listed)
		switch {
		case one.Tool.Name == name:
			if !slices.Contains(listed, name) {
				listed = append(listed, name)
			}
			return listed
		case slices.Contains(listed, name):
			return []string{name}
		}
	}
	if len(o.log.History().Last(history.Query{Tools: []string{name}, Last: 1})) > 0 {
		return []string{name}
	}
	return nil
}
