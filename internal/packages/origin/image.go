package origin

import "strings"

// ImageHost returns the host that an engine pulls an image from, as engines decide that; "" for the engine's own registries.
func ImageHost(image string) string {
	host, _, more := strings.Cut(image, "/")
	if more && (host == "localhost" || strings.ContainsAny(host, ".:")) {
		return host
	}
	return ""
}

// ImageMayBeThisMachine is MayBeThisMachine for an image.
func ImageMayBeThisMachine(image string) bool {
	host := ImageHost(image)
	return host != "" && MayBeThisMachine("https://"+host)
}
