package protocol

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

const (
	// maxPages and maxItems bound what a capsule may list.
	maxPages, maxItems = 100, 10_000
	maxListed          = 8 << 20 // bytes
	// maxListedValues bounds the JSON values of a list. Some of them stay in memory, decoded:
	// a small value takes many times its bytes there.
	maxListedValues = 400_000
	// maxCursor bounds a cursor in bytes.
	maxCursor = 64 << 10
)

// ErrLost is in the chain of the error of List if the process has ended.
var ErrLost = errors.New("the process is over")

// List fetches all pages of a list. With an error it returns the items of the pages before it.
func (p *Peer) List(ctx context.Context, method, key string, patience time.Duration) (items []json.RawMessage, err error) {
	cursor, size, values := "", 0, 0
	for range maxPages {
		page, next, err := p.page(ctx, method, key, cursor, patience)
		switch {
		case ctx.Err() != nil, errors.Is(err, rpc.ErrNotSent), err != nil && p.Err() != nil:
			return items, fmt.Errorf("%w: %w", ErrLost, cmp.Or(err, ctx.Err()))
		case err != nil:
			return items, err
		}
		for _, item := range page {
			size += len(item)
			values += rawjson.Values(item)
			if len(items) == maxItems || size > maxListed || values > maxListedValues {
				p.orla.log.Warn("a capsule lists more than Orla serves", "tool", p.orla.tool.Name, "method", method,
					"most", maxItems, "most_bytes", maxListed, "most_values", maxListedValues)
				return items, nil
			}
			items = append(items, item)
		}
		if next == "" || next == cursor {
			break
		}
		cursor = next
	}
	return items, nil
}

func (p *Peer) page(ctx context.Context, method, key, cursor string, patience time.Duration) (items []json.RawMessage, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	params := json.RawMessage("{}")
	if cursor != "" {
		params = rawjson.Pair("cursor", cursor)
	}
	result, err := p.Call(ctx, rpc.Request{Method: method, Params: p.own(params), Own: true})
	if err != nil {
		return nil, "", err
	}
	return itemsIn(result, key)
}

// itemsIn returns the items of a page, but only the first of those that are not served, and
// what the next page is called, "" for none.
func itemsIn(result json.RawMessage, key string) (items []json.RawMessage, next string, err error) {
	if !rawjson.IsObject(result) {
		return nil, "", errors.New("the answer is not an object")
	}
	found, long, listed := false, false, 0
	rawjson.Members(result, func(name []byte, value json.RawMessage) bool {
		switch string(name) {
		case key:
			found = value[0] == '['
			rawjson.Elements(value, func(item json.RawMessage) bool {
				items, listed = append(items, item), listed+len(item)
				return len(items) <= maxItems
			})
		case "nextCursor":
			if long = len(value) > maxCursor; !long {
				_ = json.Unmarshal(value, &next) // what is not a string is the end
			}
		}
		return true
	})
	if !found {
		return nil, "", fmt.Errorf("the answer has no list of %s", key)
	}
	if long {
		return nil, "", fmt.Errorf("the answer has a cursor of over %d bytes", maxCursor)
	}
	if listed < len(result)/2 { // copies, so that the items do not keep the whole result in memory
		for i, item := range items {
			items[i] = bytes.Clone(item)
		}
	}
	return items, next, nil
}
