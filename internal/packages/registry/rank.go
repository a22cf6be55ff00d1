package registry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxQuery = 200
	maxShown = 100 // bytes of a URL in a message
)

// rank returns the entries that match all words of a query, best first. If none does, those whose name is
// nearest to the query match.
func rank(entries []Entry, query string) []Entry {
	words := strings.Fields(strings.ToLower(query))
	type scored struct {
		Entry
		score int
	}
	var found []scored
	for _, e := range entries {
		if score, ok := e.score(words); ok {
			found = append(found, scored{e, score})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.Name, b.Name))
	})
	var best []Entry
	for _, s := range found {
		best = append(best, s.Entry)
	}
	if len(best) > 0 {
		return best
	}
	nearest := yamldoc.Nearest(query, namesOf(entries))
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == nearest }); i >= 0 {
		return entries[i : i+1]
	}
	return nil
}

func namesOf(entries []Entry) (names []string) {
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// score says how well an entry matches all of the words.
func (e Entry) score(words []string) (sum int, ok bool) {
	name := strings.ToLower(e.Name)
	own := name[strings.LastIndex(name, "/")+1:]
	description := strings.ToLower(e.Description)
	for _, w := range words {
		best := 0
		switch {
		case name == w || own == w:
			best = 100
		case strings.HasPrefix(own, w):
			best = 60
		case strings.Contains(name, w):
			best = 40
		}
		for _, k := range e.Keywords {
			switch k = strings.ToLower(k); {
			case k == w:
				best = max(best, 50)
			case strings.Contains(k, w):
				best = max(best, 20)
			}
		}
		if best < 10 && strings.Contains(description, w) {
			best = 10
		}
		if best == 0 {
			return 0, false
		}
		sum += best
	}
	return sum, true
}

// plain returns a text of a registry as one line, cut to a length.
func plain(text string) string { return brief.Cut(brief.Plain(text), maxDescription) }

// shown returns the URL of a registry for messages, without what may be secret.
func shown(url string) string {
	if u, err := parseHTTP(url); err == nil {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		url = u.String()
	}
	return brief.Cut(plain(url), maxShown)
}
