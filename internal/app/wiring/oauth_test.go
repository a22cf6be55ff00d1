package wiring

import (
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/service/oauth"
)

// SPEC N3, N2: an issuer stands for many callers, who must not learn about each other.
func TestN3AnIssuerHasManyCallers(t *testing.T) {
	cfg := &config.Loaded{}
	if ManyCallers(cfg) {
		t.Error("without authentication there are many callers")
	}
	cfg.Auth.OAuth.Issuer = "https://login.example.com"
	if !ManyCallers(cfg) {
		t.Error("an issuer has one caller")
	}
}

// SPEC N3: a clock that is wrong is a failure only if tokens are refused for it.
func TestN3ClocksAreCompared(t *testing.T) {
	for ahead, want := range map[time.Duration]doctor.Level{
		0: doctor.OK, -time.Second: doctor.OK, 10 * time.Second: doctor.Warn, -10 * time.Second: doctor.Warn,
		oauth.Skew + time.Second: doctor.Fail, -time.Hour: doctor.Fail,
	} {
		if f := issuerClock(ahead); f.Level != want {
			t.Errorf("%v: %+v", ahead, f)
		}
	}
}
