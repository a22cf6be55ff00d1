package capsuletest

// For the tests of the check that Main makes at its end.
var (
	Descriptors = descriptors
	LeftBehind  = leftBehind
)
