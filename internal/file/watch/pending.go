package watch

// pending has the paths that a burst has touched. The zero value has none.
type pending struct {
	list     []touched
	index    map[string]int
	all      bool // compare everything
	replaced bool // another folder may have replaced the root
}

// touched is a path, relative to the root, that had an event.
type touched struct {
	path    string
	written bool // not only its attributes changed
	tree    bool // it is or was a folder
}

// Limits for comparing path by path: beyond them, the whole tree is compared.
const (
	maxTouched      = 4096
	maxTouchedTrees = 64
)

func (p *pending) has(path string) bool {
	_, there := p.index[path]
	return there
}

func (p *pending) touch(t touched) {
	if i, there := p.index[t.path]; there {
		p.list[i].written = p.list[i].written || t.written
		p.list[i].tree = p.list[i].tree || t.tree
		return
	}
	if len(p.list) == maxTouched {
		p.all = true
		return
	}
	if p.index == nil {
		p.index = map[string]int{}
	}
	p.index[t.path] = len(p.list)
	p.list = append(p.list, t)
}

// take returns the content of p and empties it. Too many folders, each of which needs a walk, become
// one walk of the whole tree.
func (p *pending) take() pending {
	was := *p
	*p = pending{}
	trees := 0
	for _, t := range was.list {
		if t.tree {
			trees++
		}
	}
	was.all = was.all || trees > maxTouchedTrees
	return was
}
