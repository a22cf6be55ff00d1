package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// unitDirs are where systemd looks for units, the first first.
var unitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// Systemd looks at whether a service can run here: which systemd there is, and
// whether it knows the unit.
func (m Machine) Systemd(ctx context.Context, unit string) []Finding {
	const check = "systemd"
	if _, err := os.Stat(m.path("run/systemd/system")); err != nil {
		return []Finding{ok(check, "it is not running here, and Orla works without it")}
	}
	var list []Finding
	version := systemdVersion(ctx)
	switch {
	case version == 0:
		list = append(list, warn(check, "", "it runs, and does not say which version it is"))
	case version < 253:
		list = append(list, ok(check, "version %d, which has no Type=notify-reload: the unit has to say Type=notify and ExecReload=", version))
	default:
		list = append(list, ok(check, "version %d, which has Type=notify-reload", version))
	}
	for _, dir := range unitDirs {
		file := filepath.Join(dir, unit)
		text := m.read(file)
		switch {
		case text == "":
			continue
		case version > 0 && version < 253 && strings.Contains(text, "\nType=notify-reload"):
			return append(list, fail(check, "", "/%s says Type=notify-reload, which this systemd does not know", file))
		}
		return append(list, ok(check, "%s is installed: /%s", unit, file))
	}
	return append(list, ok(check, "%s is not installed", unit))
}

// systemdVersion asks systemctl, which says "systemd 252 (252.39-1~deb12u1)". 0
// means that it does not.
func systemdVersion(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		return 0
	}
	digits, _, _ := strings.Cut(fields[1], "~") // 258~rc1
	version, _ := strconv.Atoi(digits)          // 0 if it is not a number
	return version
}
