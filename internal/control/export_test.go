package control

// Routes lists what can be asked, as docs/control-api.yaml writes it.
func Routes() []string {
	var patterns []string
	for _, r := range routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
