package offers

import "time"

const (
	// relistPause is the least time between two requests for the lists of a capsule,
	// however often it says that they have changed.
	relistPause = time.Second
	// relistEach and relistByte are added to relistPause for each thing that was listed, and for each of its bytes:
	// about ten times as long as Orla works on it, so that long lists that change all the time cannot keep Orla
	// busy, nor fill its memory with those before them (SPEC S2).
	relistEach, relistByte = 100 * time.Microsecond, time.Second >> 22
	// relistFar is added for each thing that an McpServer has listed.
	relistFar = 2 * time.Millisecond
	// strangersPatience is how long all lists wait at most for what a stranger has made, who also chooses its startup
	// timeout: an installed package, or a remote server.
	strangersPatience = 10 * time.Second
)

// Rest is the least time between two requests for the lists.
func (o *Offering) Rest() time.Duration {
	said := o.Last()
	listed, bytes := said.Size()
	rest := relistPause + time.Duration(listed)*relistEach + time.Duration(bytes)*relistByte
	if o.tool.Runtime.Generated {
		rest += time.Duration(listed) * relistFar
	}
	return rest
}

// Early is how long a process that has just begun is not to be asked for its lists, since another one has said them: until
// Rest is over, but for lists that take little. A server that ends its sessions, or a capsule that ends itself, is
// asked no more often than one that stays, and what it said stands meanwhile.
func (o *Offering) Early() time.Duration {
	const little = relistPause + relistPause/10
	rest := o.Rest()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heard.IsZero() || rest < little {
		return 0
	}
	return max(0, rest-time.Since(o.heard))
}

// Patience is how long all lists, of any client, wait for the capsule to say for the first time what it offers (SPEC D7a), and whether
// a stranger has made it. installs is how long its dependencies may be installed before it is started. own says that what is
// remote is a replica of this Orla.
func (o *Offering) Patience(installs time.Duration, own bool) (patience time.Duration, strange bool) {
	patience = installs + o.tool.Runtime.StartupTimeout
	if strange = o.tool.Run.Setup.Package != "" || o.tool.Runtime.Remote != nil && !own; strange {
		patience = min(patience, strangersPatience)
	}
	return patience, strange
}
