//go:build bootstrap

package envoyrls_test

import (
	"encoding/json"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// The configuration of the page fits Envoy's schema, with the typed parts in it. The schema takes long to compile, so CI leaves
// this test out: go test -tags bootstrap -run Bootstrap .
func TestPageHasValidBootstrap(t *testing.T) {
	_, envoy := yamlBlocks(t)
	var v map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(envoy), &v))
	text, err := json.Marshal(v)
	require.NoError(t, err)
	b := new(bootstrapv3.Bootstrap)
	require.NoError(t, protojson.Unmarshal(text, b))
	require.NoError(t, b.ValidateAll())
	resources := b.GetStaticResources()
	for _, f := range resources.GetListeners()[0].GetFilterChains()[0].GetFilters() {
		validate(t, f.GetTypedConfig())
	}
	for _, o := range resources.GetClusters()[1].GetTypedExtensionProtocolOptions() {
		validate(t, o)
	}
}

func validate(t *testing.T, packed *anypb.Any) {
	t.Helper()
	m, err := packed.UnmarshalNew()
	require.NoError(t, err)
	require.NoError(t, m.(interface{ ValidateAll() error }).ValidateAll())
	manager, is := m.(*managerv3.HttpConnectionManager)
	if !is {
		return
	}
	require.Len(t, manager.GetHttpFilters(), 2)
	for _, f := range manager.GetHttpFilters() {
		validate(t, f.GetTypedConfig())
	}
}
