package watch

// pending is what a burst has touched so far. Its zero value is an empty one.
type pending struct {
	list     []touched
	index    map[string]int
	all      bool // look at everything
	replaced bool // another root may stand in the place of the root
}

// touched is a path, relative to the root, that something happened to.
type touched struct {
	path    string
	written bool // not only its attributes
	tree    bool // it is or was a folder
}

// A burst that touches more than that is not looked at path by path.
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

// take empties p. Too many folders, each of which is a walk, become one walk.
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
