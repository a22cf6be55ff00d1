package address

// ForbiddenHost is forbiddenHost.
var ForbiddenHost = forbiddenHost
