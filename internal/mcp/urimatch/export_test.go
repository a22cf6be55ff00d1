package urimatch

// The limits of templates and URIs.
const (
	MaxLength    = maxLength
	MaxVariables = maxVariables
	MaxURI       = maxURI
)
