package stdio

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// unlucky is a connection over whose requests Orla panics: it lacks its bridge.
func unlucky(t *testing.T) (c *Conn, sent *[]string) {
	t.Helper()
	c = newConn(&mcpbridge.Bridge{}, client.Origin{}, 1<<20)
	c.log = slog.New(slog.DiscardHandler)
	c.bridge = nil
	t.Cleanup(c.HangUp)
	sent = &[]string{}
	c.send = func(message wire.Parts) error {
		*sent = append(*sent, string(message.Join()))
		return nil
	}
	return c, sent
}

// SPEC F2: a panic over a request ends its connection, alone, and gives back what the line
// holds.
func TestF2APanicOverALineGivesItsRoomBack(t *testing.T) {
	for name, line := range map[string]string{
		"request": `{"jsonrpc":"2.0","id":7,"method":"ping"}`,
		"batch":   `[{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			c, sent := unlucky(t)
			shares := turns.NewShares(100)
			account := budget.NewAccount(shares, c.Owner())
			if err := account.Grow(t.Context(), 10, 0); err != nil {
				t.Fatal(err)
			}
			c.take(lineOfTest(line, account))
			<-c.Done()
			c.calls.Wait()
			c.release()
			if got := strings.Join(*sent, ""); got != "" {
				t.Errorf("sent is %q", got)
			}
			if free := shares.Free(); free != 100 {
				t.Errorf("%d bytes are still held", 100-free)
			}
		})
	}
}

func lineOfTest(data string, account *budget.Account) line {
	return line{data: []byte(data), account: account}
}

// SPEC F2: a panic over what is written ends the connection, and who waits for it sees its
// end.
func TestF2APanicOverWhatIsWrittenEndsTheConnection(t *testing.T) {
	c, _ := unlucky(t)
	c.send = func(wire.Parts) error { panic("for the test") }
	c.take(lineOfTest("no message", nil))
	select {
	case <-c.Done():
	default:
		t.Error("the connection goes on")
	}
}

// The same of news, which a goroutine of its own passes on.
func TestF2APanicOverNewsEndsTheConnection(t *testing.T) {
	c, _ := unlucky(t)
	c.send = func(wire.Parts) error { panic("for the test") }
	c.session.Inbox.ListChanged([client.Lists]bool{true})
	c.passNews()
	<-c.Done()
	c.lines.Wait()
}

// SPEC F2: a POST to an SSE stream over which there is a panic gives back what it holds.
func TestF2APanicOverAPostToAStreamGivesItsRoomBack(t *testing.T) {
	c, _ := unlucky(t)
	shares := turns.NewShares(100)
	account := budget.NewAccount(shares, c.Owner())
	if err := account.Grow(context.Background(), 10, 0); err != nil {
		t.Fatal(err)
	}
	if refused := c.Post([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), account); refused != "" {
		t.Fatal(refused)
	}
	c.calls.Wait()
	c.release()
	if free := shares.Free(); free != 100 {
		t.Errorf("%d bytes are still held", 100-free)
	}
	<-c.Done()
}
