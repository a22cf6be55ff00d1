// Package trees finds the descendants of the processes that Orla starts, including those that left
// the group. It uses the group and the session, a mark in the environment, and a tag: a value of a
// resource limit that descendants inherit. It starts no process, and ends none by itself.
package trees

// Tree says how to find the processes of a tree.
type Tree struct {
	Group int    // the id of the group and the session; 0 once another group may have it
	Mark  string // the mark in the environment of its processes
	Tag   uint64 // the tag that its processes have inherited; 0 if there is none
	Since uint64 // when the leader was started: no older process belongs to the tree; 0 if not known
}
