package client

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
)

// maxTold is how many notifications can be told again one by one.
const maxTold = 64

// told is what the client of a session was told last. The id of a notification says how many there were with it.
type told struct {
	n    int      // how many there were
	last []change // the newest ones
}

// change is what a notification tells of: a resource, or a list if uri is "". Lists is none.
type change struct {
	uri  string
	list listKind
}

// newsPrefix begins the ids of notifications, and thisProcess those of this one.
const newsPrefix = "news."

var thisProcess = newsPrefix + rand.Text() + "."

// IsNews reports whether an id of an event is one that Told returned, in this process or another.
func IsNews(id string) bool { return strings.HasPrefix(id, newsPrefix) }

// Told returns the id of the notification that the client was told last.
func (i *Inbox) Told() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	if i.told != nil {
		n = i.told.n
	}
	return thisProcess + strconv.Itoa(n)
}

// TellAfter has the client told again what it was told after the notification with an id, which it got last: the connection
// may have been broken already. If it is not known any more what that was, all lists may have changed.
func (i *Inbox) TellAfter(id string) {
	again, known := i.after(id)
	var lists [Lists]bool
	for _, c := range again {
		if c.uri != "" {
			i.ResourceUpdated(c.uri)
		} else if c.list < Lists {
			lists[c.list] = true
		}
	}
	if !known {
		lists = [Lists]bool{true, true, true}
	}
	i.ListChanged(lists)
}

// after returns what the client was told after the notification with an id, or what is known of it.
func (i *Inbox) after(id string) (again []change, known bool) {
	number, ours := strings.CutPrefix(id, thisProcess)
	n, err := strconv.Atoi(number)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.told == nil {
		return nil, ours && n == 0 && err == nil
	}
	again = slices.Clone(i.told.last)
	if !ours || err != nil || n > i.told.n || n < i.told.n-len(again) {
		return again, false
	}
	return again[len(again)-(i.told.n-n):], true
}

// noteLocked notes what the client of a session is told.
func (i *Inbox) noteLocked(c change) {
	if i.Subscription != nil {
		return // it has no session that it could come back to
	}
	if i.told == nil { // most sessions hear nothing
		i.told = &told{}
	}
	i.told.n++
	if len(i.told.last) == maxTold {
		i.told.last = append(i.told.last[:0], i.told.last[1:]...)
	}
	i.told.last = append(i.told.last, c)
}

// forget does not tell of a resource again.
func (t *told) forget(uri string) {
	if t == nil {
		return
	}
	for n, c := range t.last {
		if c.uri == uri {
			t.last[n] = change{list: Lists}
		}
	}
}
