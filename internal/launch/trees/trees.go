// Package trees tells which processes belong together: what a process that Orla
// started has started itself, also where that left its group. It goes by the group
// and the session, by a mark in the environment, and by a tag, a value of a resource
// limit that descendants inherit. It starts nothing, and ends nothing by itself.
package trees

// Tree says what belongs to a process, for those who look for it.
type Tree struct {
	Group int    // its group and its session; 0 once the id may be a stranger's
	Mark  string // in the environment of all of it
	Tag   uint64 // what all of it has inherited; 0 if there is none
	Since uint64 // when its leader was started: nothing older is part of it; 0 if not known
}
