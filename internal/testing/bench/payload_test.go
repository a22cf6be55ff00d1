package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestNothingButAnAnswerPasses(t *testing.T) {
	answer := func(size int) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"%s"}]}}`, strings.Repeat("x", size))
	}
	if err := (payload{size: 1000}).check(answer(1000)); err != nil {
		t.Error(err)
	}
	if err := (payload{size: 1 << 20, asArgs: true}).check(answer(littleText)); err != nil {
		t.Error(err)
	}
	for name, message := range map[string][]byte{
		"a short one": answer(900),
		"a long one":  answer(2000),
		"an error":    bytes.Replace(answer(1000), []byte(`"content"`), []byte(`"isError":true,"content"`), 1),
		"none":        []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"` + strings.Repeat("x", 1000) + `"}}`),
	} {
		if (payload{size: 1000}).check(message) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestALineIsARequest(t *testing.T) {
	for _, p := range []payload{{size: 10}, {size: 1000, asArgs: true}} {
		var m struct {
			ID     int `json:"id"`
			Params struct {
				Arguments struct {
					Size int    `json:"size"`
					Text string `json:"text"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(p.line()(nil, 7), &m); err != nil {
			t.Fatal(err)
		}
		want := 0
		if p.asArgs {
			want = p.size
		}
		if m.ID != 7 || m.Params.Arguments.Size != p.answered() || len(m.Params.Arguments.Text) != want {
			t.Errorf("%s became %+v", p, m)
		}
	}
}

func TestAnswersOnPipesAreMatchedByTheirID(t *testing.T) {
	client := func(answers string) (*stdioClient, *bytes.Buffer) {
		var sent bytes.Buffer
		return &stdioClient{in: bufio.NewReader(strings.NewReader(answers)), out: &sent}, &sent
	}
	request := func(buf []byte, id int) []byte { return fmt.Appendf(buf, "%d", id) }
	fine := func([]byte) error { return nil }
	c, sent := client("{\"id\":1}\n{\"method\":\"note\"}\n{\"id\":0}\n{\"id\":1}\n")
	took, err := c.exchange(3, 2, request, fine)
	if err != nil || len(took) != 3 || sent.String() != "0\n1\n1\n" {
		t.Errorf("%d answers, %v; sent %q", len(took), err, sent)
	}
	c, _ = client("{\"id\":5}\n")
	if _, err := c.exchange(1, 1, request, fine); err == nil {
		t.Error("the answer to another request passes")
	}
}
