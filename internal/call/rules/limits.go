package rules

// Limits are how much one caller may have at one time (SPEC N1). Zero means no limit of its own.
type Limits struct {
	Sessions      int   // sessions and streams over HTTP
	Subscriptions int   // resources that it follows
	KeptMemory    int64 // bytes of kept answers
}
