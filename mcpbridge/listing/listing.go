// Package listing has the lists that clients get, encoded once for all of them, in pages.
package listing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// pageSize is how many items a page of a list has.
const pageSize = mcp.DefaultPageSize

// Items are what is listed of one kind.
type Items[T any] struct {
	all   []Item[T] // by their keys, in order
	pages []json.RawMessage
}

// Item is one of them.
type Item[T any] struct {
	Key    string
	Value  T
	JSON   json.RawMessage
	Traits Traits // of a tool
}

// Traits is what has to be known of a tool to answer a call of it.
type Traits struct {
	Structured bool              // clients expect a structured answer
	Headers    *wire.HeaderParam // arguments that stand in HTTP headers as well; nil for none
}

// Find returns an item.
func (l Items[T]) Find(key string) (Item[T], bool) {
	at, found := slices.BinarySearchFunc(l.all, key, func(i Item[T], key string) int { return strings.Compare(i.Key, key) })
	if !found {
		return Item[T]{}, false
	}
	return l.all[at], true
}

// Page returns the items behind a key, "" for the first ones, as a JSON array, and the key
// to go on with; "" at the end. A page ends where one from the beginning does, so that all
// clients are told the same bytes. keeps is how many bytes are kept for as long as it is.
func (l Items[T]) Page(after string) (page wire.Parts, next string, keeps int) {
	at := 0
	if after != "" {
		var found bool
		at, found = slices.BinarySearchFunc(l.all, after, func(i Item[T], key string) int { return strings.Compare(i.Key, key) })
		if found {
			at++
		}
	}
	begin := at - at%pageSize
	end := min(begin+pageSize, len(l.all))
	if end < len(l.all) {
		next = l.all[end-1].Key
	}
	if at == end && at > 0 || begin/pageSize == len(l.pages) {
		return wire.Parts{[]byte("[]")}, next, 0
	}
	whole := l.pages[begin/pageSize]
	if at == begin {
		return wire.Parts{whole}, next, len(whole)
	}
	left := 0 // bytes of what is before
	for _, i := range l.all[begin:at] {
		left += len(i.JSON) + len(",")
	}
	rest := whole[1+left:]
	if len(rest) <= turns.Little { // which nobody counts
		return wire.Parts{[]byte("["), bytes.Clone(rest)}, next, len(rest)
	}
	return wire.Parts{whole[:1], rest}, next, len(whole)
}

func joinItems[T any](all []Item[T]) json.RawMessage {
	size := 2
	for _, i := range all {
		size += len(i.JSON) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for n, i := range all {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, i.JSON...)
	}
	return append(out, ']')
}

// List lists now, of which what equals a value of before stays as it was. It returns
// whether anything differs. What check refuses is left out, and refused is told of it.
func List[T any](before Items[*T], now []*T, key func(*T) string, check func(*T) (Traits, error), refused func(key string, err error)) (Items[*T], bool) {
	next := Items[*T]{all: make([]Item[*T], 0, len(now))}
	differs := false
	for _, value := range now {
		k := key(value)
		if had, ok := before.Find(k); ok && (had.Value == value || reflect.DeepEqual(had.Value, value)) {
			next.all = append(next.all, had)
			continue
		}
		made := Item[*T]{Key: k, Value: value}
		err := contained(func() (err error) {
			if made.Traits, err = check(value); err == nil {
				made.JSON, err = json.Marshal(value)
			}
			return err
		})
		if err != nil {
			refused(k, err)
			continue
		}
		next.all = append(next.all, made)
		differs = true
	}
	slices.SortFunc(next.all, func(a, b Item[*T]) int { return strings.Compare(a.Key, b.Key) })
	if !differs && len(next.all) == len(before.all) {
		return before, false
	}
	next.join(before)
	return next, true
}

// join makes the pages, but for those that were there before.
func (l *Items[T]) join(before Items[T]) {
	for at := 0; at < len(l.all) || at == 0; at += pageSize {
		page, was := l.all[at:min(at+pageSize, len(l.all))], min(at, len(before.all))
		if slices.EqualFunc(page, before.all[was:min(at+pageSize, len(before.all))], sameItem) && len(page) > 0 {
			l.pages = append(l.pages, before.pages[at/pageSize])
		} else {
			l.pages = append(l.pages, joinItems(page))
		}
	}
}

// sameItem reports whether an item was listed before.
func sameItem[T any](a, b Item[T]) bool {
	return a.Key == b.Key && len(a.JSON) == len(b.JSON) && len(a.JSON) > 0 && &a.JSON[0] == &b.JSON[0]
}

// Only returns the items that are kept. If all are, it returns l itself.
func (l Items[T]) Only(keep func(T) bool) Items[T] {
	first := slices.IndexFunc(l.all, func(i Item[T]) bool { return !keep(i.Value) })
	if first < 0 {
		return l
	}
	kept := Items[T]{all: slices.Clone(l.all[:first])}
	for _, i := range l.all[first:] {
		if keep(i.Value) {
			kept.all = append(kept.all, i)
		}
	}
	kept.join(l)
	return kept
}

// Size returns how many bytes the pages have.
func (l Items[T]) Size() (size int) {
	for _, page := range l.pages {
		size += len(page)
	}
	return size
}

// contained calls encode. What a peer offers must not end the process by a panic (SPEC G5b).
func contained(encode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be encoded: %v", p)
		}
	}()
	return encode()
}
