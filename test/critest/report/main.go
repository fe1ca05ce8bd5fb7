// Command report prints a table of the specs that failed in a run of critest, from its JUnit report, and a summary.
package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
)

type suites struct {
	Suites []struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Status  string    `xml:"status,attr"`
			Failure *problem  `xml:"failure"`
			Error   *problem  `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type problem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report JUNIT-FILE")
		os.Exit(2)
	}
	data, err := os.ReadFile(os.Args[1])
	var s suites
	if err == nil {
		err = xml.Unmarshal(data, &s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	passed, failed, skipped := 0, 0, 0
	for _, suite := range s.Suites {
		for _, c := range suite.Cases {
			why := c.Failure
			if why == nil {
				why = c.Error
			}
			switch {
			case !strings.HasPrefix(c.Name, "[It]"):
			case why != nil:
				failed++
				fmt.Printf("FAIL %s\n     %s\n", strings.TrimPrefix(c.Name, "[It] "), reason(why))
			case c.Skipped != nil:
				skipped++
			default:
				passed++
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 {
		os.Exit(1)
	}
}

// reason is the first line of a failure that says something.
func reason(p *problem) string {
	text := strings.Join(strings.Fields(p.Message+" "+p.Text), " ")
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
