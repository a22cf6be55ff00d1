package approvals

// MaxEnded is for tests outside of the package.
const MaxEnded = maxEnded
