package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// The part of a Markdown file that a run rewrites stands between these lines.
const (
	beginMarker = "<!-- bench: begin -->"
	endMarker   = "<!-- bench: end -->"
)

// table is one table of results. Every row has as many cells as header.
type table struct {
	title  string
	header []string
	rows   [][]string
	note   string // "" for none
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text lays the table out for a terminal.
func (t *table) text() string { return t.title + "\n\n" + t.grid("  ", "") + t.below() }

// markdown lays the table out for a document.
func (t *table) markdown() string { return "### " + t.title + "\n\n" + t.grid(" | ", "| ") + t.below() }

func (t *table) below() string {
	if t.note == "" {
		return ""
	}
	return "\n" + t.note + "\n"
}

// grid aligns the cells: the first column to the left, the others to the right.
func (t *table) grid(between, edge string) string {
	widths := slices.Repeat([]int{2}, len(t.header)) // the least that Markdown takes
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(row []string) {
		b.WriteString(edge)
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString(between + pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		if edge != "" {
			b.WriteString(" |")
		}
		b.WriteByte('\n')
	}
	line(t.header)
	rule := make([]string, len(widths))
	for i, w := range widths {
		rule[i] = strings.Repeat("-", w)
		if i > 0 && edge != "" {
			rule[i] = rule[i][1:] + ":" // Markdown for a column to the right
		}
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// rewrite puts the tables between the markers of the file at path.
func rewrite(path, conditions string, tables []table) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, began := bytes.Cut(old, []byte(beginMarker))
	_, tail, ended := bytes.Cut(rest, []byte(endMarker))
	if !began || !ended {
		return fmt.Errorf("%s: wants a line %s and, below it, a line %s", path, beginMarker, endMarker)
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(beginMarker + "\n\n" + conditions + "\n")
	for _, t := range tables {
		b.WriteString("\n" + t.markdown())
	}
	b.WriteString("\n" + endMarker)
	b.Write(tail)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
