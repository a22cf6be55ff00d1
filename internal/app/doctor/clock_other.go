//go:build !linux

package doctor

// clockState cannot be asked here.
func clockState() (synchronised, known bool) { return false, false }
