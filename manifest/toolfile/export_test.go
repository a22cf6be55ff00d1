package toolfile

// ParseShebang is parseShebang.
var ParseShebang = parseShebang
