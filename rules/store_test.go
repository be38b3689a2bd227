package rules_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/rules"
)

// etcd reads a key through the JSON gateway of etcd 3.
func etcd(address, key string) rules.Source {
	return func(ctx context.Context) ([]byte, error) {
		ask := fmt.Sprintf(`{"key": %q}`, base64.StdEncoding.EncodeToString([]byte(key)))
		var answer struct{ Kvs []struct{ Value []byte } }
		err := fetch(ctx, http.MethodPost, address+"/v3/kv/range", "", strings.NewReader(ask), &answer)
		if err == nil && len(answer.Kvs) == 0 {
			err = fmt.Errorf("etcd has no key %s", key)
		}
		if err != nil {
			return nil, err
		}
		return answer.Kvs[0].Value, nil
	}
}

// configMap reads a file of a ConfigMap from the Kubernetes API.
func configMap(address, token, namespace, name, file string) rules.Source {
	return func(ctx context.Context) ([]byte, error) {
		var answer struct{ Data map[string]string }
		err := fetch(ctx, http.MethodGet, address+"/api/v1/namespaces/"+namespace+"/configmaps/"+name, token, http.NoBody, &answer)
		if document, ok := answer.Data[file]; ok && err == nil {
			return []byte(document), nil
		}
		return nil, cmp.Or(err, fmt.Errorf("the ConfigMap %s has no %s", name, file))
	}
}

func fetch(ctx context.Context, method, url, token string, body io.Reader, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// The sources of docs/rules.md, against answers as the two projects document them.
func TestStoresOfTheDocumentation(t *testing.T) {
	const text = `{"rules": {"p": {"A": 5}}}`
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/kv/range", func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Key []byte }
		if json.NewDecoder(r.Body).Decode(&ask) != nil || string(ask.Key) != "shop/rules" {
			_, _ = io.WriteString(w, `{"header": {"revision": "7"}}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"header": {"revision": "7"}, "kvs": [{"key": "x", "version": "1", "value": %q}], "count": "1"}`,
			base64.StdEncoding.EncodeToString([]byte(text)))
	})
	mux.HandleFunc("GET /api/v1/namespaces/shop/configmaps/rules", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "rules"}, "data": {"rules.json": %q}}`, text)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for name, source := range map[string]rules.Source{
		"etcd": etcd(server.URL, "shop/rules"), "configMap": configMap(server.URL, "secret", "shop", "rules", "rules.json"),
	} {
		data, err := source(t.Context())
		require.NoError(t, err, name)
		require.JSONEq(t, text, string(data), name)
	}
	for want, source := range map[string]rules.Source{
		"etcd has no key other":               etcd(server.URL, "other"),
		"403 Forbidden":                       configMap(server.URL, "wrong", "shop", "rules", "rules.json"),
		"the ConfigMap rules has no other":    configMap(server.URL, "secret", "shop", "rules", "other"),
		"/api/v1/namespaces/x/configmaps/y a": configMap(server.URL, "secret", "x", "y", "z"),
	} {
		_, err := source(t.Context())
		require.ErrorContains(t, err, want)
	}
}
