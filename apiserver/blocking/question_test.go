package blocking_test

import (
	"errors"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/internal/hangtest"
)

func TestParse(t *testing.T) {
	tests := []struct {
		query      string
		collection bool
		want       blocking.Question
		err        string
	}{
		{
			query: "until=object.a+==+1",
			want:  blocking.Question{Outcomes: []blocking.Outcome{{Name: "done", Text: "object.a == 1"}}, Missing: blocking.Fail, Timeout: time.Minute},
		},
		{
			query: "until=ok:object.a&until=failed:+object.b&timeoutSeconds=0&untilMissing=wait",
			want:  blocking.Question{Outcomes: []blocking.Outcome{{Name: "ok", Text: "object.a"}, {Name: "failed", Text: "object.b"}}, Missing: blocking.Stay},
		},
		{
			query: "until=object.a&until=failed:any:object.b&until=all:object.c", collection: true,
			want: blocking.Question{
				Outcomes: []blocking.Outcome{{Name: "done", Text: "object.a"}, {Name: "failed", Text: "object.b", Any: true}, {Name: "done", Text: "object.c"}},
				Missing:  blocking.Stay, Timeout: time.Minute,
			},
		},
		{query: "untilMissing=done&timeoutSeconds=3600", want: blocking.Question{Missing: blocking.Ended, Timeout: time.Hour}},
		{query: "until=object.a+?+object.b+:+object.c", want: blocking.Question{Outcomes: []blocking.Outcome{{Name: "done", Text: "object.a ? object.b : object.c"}}, Missing: blocking.Fail, Timeout: time.Minute}},

		{query: "until=any:object.a", err: "until: any: can only be used for a collection"},
		{query: "untilMissing=wait", err: "until is missing: pass an expression to wait for, or untilMissing=done to wait for the deletion of all objects"},
		{query: "until=a&untilMissing=maybe", err: `untilMissing: "maybe", want fail, wait or done`},
		{query: "until=a&timeoutSeconds=-1", err: `timeoutSeconds: "-1", want a number of seconds from 0 to 3600`},
		{query: "until=a&timeoutSeconds=3601", err: `timeoutSeconds: "3601", want a number of seconds from 0 to 3600`},
		{query: "until=a&timeoutSeconds=99999999999999999999", err: `timeoutSeconds: "99999999999999999999", want a number of seconds from 0 to 3600`},
		{query: "until=a&timeoutSeconds=1m&untilMissing=", err: `untilMissing: "", want fail, wait or done; timeoutSeconds: "1m", want a number of seconds from 0 to 3600`},
		{query: "until=a&until=a&until=a&until=a&until=a&until=a&until=a&until=a&until=a", err: "until: 9 outcomes, want at most 8"},
	}
	for _, tt := range tests {
		t.Run(tt.query, func(t *testing.T) {
			q, err := url.ParseQuery(tt.query)
			if err != nil || !blocking.Asked(q) {
				t.Fatalf("%v, asked: %v", err, blocking.Asked(q))
			}
			got, err := blocking.Parse(q, tt.collection)
			var invalid *blocking.InvalidError
			switch {
			case tt.err != "":
				if !errors.As(err, &invalid) || err.Error() != tt.err {
					t.Errorf("error\n  %v, want\n  %s", err, tt.err)
				}
			case err != nil || !reflect.DeepEqual(got, tt.want):
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// FuzzParse checks that any query is refused or is a question that Waiters accepts.
func FuzzParse(f *testing.F) {
	f.Add("until=ok:any:object.a&untilMissing=wait&timeoutSeconds=5", true)
	f.Add("until=%00:&until", false)
	f.Fuzz(func(t *testing.T, query string, collection bool) {
		defer hangtest.Guard(t)()
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		got, err := blocking.Parse(q, collection)
		if err != nil {
			return
		}
		if got.Timeout < 0 || got.Timeout > blocking.MaxTimeout || len(got.Outcomes) > 8 || len(got.Outcomes) == 0 && got.Missing != blocking.Ended {
			t.Errorf("%q: %+v", query, got)
		}
		for _, o := range got.Outcomes {
			if o.Name == "" || o.Any && !collection {
				t.Errorf("%q: %+v", query, o)
			}
		}
	})
}
