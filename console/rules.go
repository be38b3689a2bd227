package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
)

// Control says who may change the rules of a page, and where they live.
type Control struct {
	// Who returns the name of the person who sends a request, for the log, or "" if that person may not change the rules. It
	// must rely on a login of yours, such as a session or a header of a trusted proxy. If Who is nil, nobody may. It may be
	// called concurrently.
	Who func(*http.Request) string
	// Write puts a checked document where the rules live, such as [rules.WriteFile]. All processes that follow the source then
	// take it, and it is there after a restart. If Write is nil, the page can only pin versions in this process.
	Write func(ctx context.Context, document []byte) error
	// Logger gets a line for each change with the name from Who. If Logger is nil, it is [slog.Default].
	Logger *slog.Logger
}

// maxOrder is the size of the longest order in bytes: a document as a JSON text.
const maxOrder = 3 << 20

// An order asks for a change of the rules.
type order struct {
	Do       string `json:"do"` // "check", "write", "pin" or "unpin"
	Document string `json:"document"`
	Version  int    `json:"version"` // to pin, or that was in force when the document was edited
}

// rules answers GET with the rules, and POST to an order.
func (p *Page) rules(w http.ResponseWriter, r *http.Request) {
	if p.o.Rules == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodPost {
		if status, err := p.obey(w, r); err != nil {
			http.Error(w, err.Error(), status)
			return
		}
	}
	st := p.o.Rules.Stats()
	out := struct {
		Versions []version `json:"versions"` // the newest first
		InForce  int       `json:"in_force"`
		Pinned   bool      `json:"pinned"`
		Error    string    `json:"error"`
		Who      string    `json:"who"` // "" if the reader may change nothing
		Write    bool      `json:"write"`
	}{Pinned: st.Pinned, InForce: st.Version, Who: p.who(r), Write: p.o.Control != nil && p.o.Control.Write != nil}
	if st.Err != nil {
		out.Error = st.Err.Error()
	}
	for _, v := range p.o.Rules.Versions() {
		out.Versions = append([]version{{
			v.Number, v.Time.UnixMilli(), v.Source, v.Hash, v.Note, v.Result, v.Error, v.Changes, string(v.Document),
		}}, out.Versions...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client is gone
}

// version is a rules.Version as the page reads it.
type version struct {
	Number   int      `json:"number"`
	Time     int64    `json:"t"` // Unix milliseconds
	Source   string   `json:"source"`
	Hash     string   `json:"hash"`
	Note     string   `json:"note"`
	Result   string   `json:"result"`
	Error    string   `json:"error"`
	Changes  []string `json:"changes"`
	Document string   `json:"document"`
}

// who returns the name of the person who may change the rules, or "".
func (p *Page) who(r *http.Request) string {
	if p.o.Control == nil || p.o.Control.Who == nil {
		return ""
	}
	return p.o.Control.Who(r)
}

// obey does what a request orders. A browser cannot be made to send one by a page of another origin.
func (p *Page) obey(w http.ResponseWriter, r *http.Request) (status int, err error) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return http.StatusForbidden, err
	}
	who := p.who(r)
	if who == "" {
		return http.StatusForbidden, errors.New("you may not change the rules: console.Options.Control says who may")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("the Content-Type must be application/json")
	}
	var o order
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return http.StatusBadRequest, fmt.Errorf("the order cannot be read: %w", err)
	}
	switch o.Do {
	case "check":
		if err := p.o.Rules.Check([]byte(o.Document)); err != nil {
			return http.StatusUnprocessableEntity, err
		}
		return 0, nil
	case "write":
		err = p.write(r.Context(), &o)
	case "pin":
		err = p.o.Rules.Pin(o.Version)
	case "unpin":
		err = p.o.Rules.Unpin()
	default:
		return http.StatusBadRequest, fmt.Errorf(`do must be "check", "write", "pin" or "unpin", got %q`, o.Do)
	}
	logger := cmp.Or(p.o.Control.Logger, slog.Default())
	attributes := []any{slog.String("who", who), slog.String("do", o.Do), slog.Int("version", o.Version), slog.String("peer", r.RemoteAddr)}
	if err != nil {
		logger.WarnContext(r.Context(), "console: rules not changed", append(attributes, slog.Any("error", err))...)
		return http.StatusUnprocessableEntity, err
	}
	logger.InfoContext(r.Context(), "console: rules changed", attributes...)
	return 0, nil
}

// write writes a document, unless it was made from another version than the one in force: it would undo a change.
func (p *Page) write(ctx context.Context, o *order) error {
	if p.o.Control.Write == nil {
		return errors.New("this page cannot write the rules: change them where they live")
	}
	if now := p.o.Rules.Stats().Version; o.Version != now {
		return fmt.Errorf("the rules have changed: version %d is in force, the document was made from version %d. Reload the page", now, o.Version)
	}
	if err := p.o.Rules.Check([]byte(o.Document)); err != nil {
		return err
	}
	return p.o.Control.Write(ctx, []byte(o.Document))
}
