package envoyrls_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-go/spillway/gateway/envoyrls"
)

// yamlBlocks returns the blocks of YAML in the page about gateways: a file of descriptors, and a configuration of Envoy.
func yamlBlocks(t *testing.T) (file, envoy string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateways.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")
	require.Len(t, blocks, 3)
	file, _, _ = strings.Cut(blocks[1], "```")
	envoy, _, _ = strings.Cut(blocks[2], "```")
	return file, envoy
}

func TestPageHasValidFiles(t *testing.T) {
	file, envoy := yamlBlocks(t)
	require.NoError(t, envoyrls.Check(map[string][]byte{"shop.yaml": []byte(file)}))
	require.NoError(t, yaml.Unmarshal([]byte(envoy), &struct{}{}))
	for _, same := range []string{"domain: shop\n", "remote_address"} {
		require.Contains(t, file, same)
		require.Contains(t, strings.ReplaceAll(envoy, " # as in the file", ""), same)
	}
}
