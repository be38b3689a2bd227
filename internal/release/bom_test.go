package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const buildInfo = `path	github.com/spillway-go/spillway/cmd/spillwayd
mod	github.com/spillway-go/spillway/cmd/spillwayd	v0.1.0	h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
dep	github.com/beorn7/perks	v1.0.1	h1:VlbKKnNfV8bJzeqoa4cOKqO6bYr3WgKZxO8Z16+hsOM=
dep	golang.org/x/time	v0.15.0	h1:bbrp8t3bGUeFOx08pvsMYRTCVSMk89u4tKbNOZbp88U=
build	-trimpath=true
build	CGO_ENABLED=0
build	GOARCH=amd64
build	GOOS=linux
`

func info(t *testing.T, replace ...string) *debug.BuildInfo {
	t.Helper()
	i, err := debug.ParseBuildInfo(strings.NewReplacer(replace...).Replace(buildInfo))
	require.NoError(t, err)
	i.GoVersion = "go1.26.8"
	return i
}

// The bill of materials is valid by the published schema, and has all that is linked.
func TestBillOfMaterials(t *testing.T) {
	bill, err := bom(info(t), []byte("binary"))
	require.NoError(t, err)
	schema := schema16(t)
	require.NoError(t, schema.Validate(parse(t, bill)))
	for _, part := range []string{`"bomFormat"`, `"specVersion"`, `"name": "std",`, `"urn:uuid:`} {
		broken := bytes.Replace(bill, []byte(part), []byte(`"nothing": "`), 1)
		require.False(t, json.Valid(broken) && schema.Validate(parse(t, broken)) == nil, "without %s", part)
	}

	var b cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(bill), cdx.BOMFileFormatJSON).Decode(&b))
	require.Equal(t, cdx.SpecVersion1_6, b.SpecVersion)
	const purl = "pkg:golang/github.com/spillway-go/spillway/cmd/spillwayd@v0.1.0?goarch=amd64&goos=linux"
	require.Equal(t, purl, b.Metadata.Component.PackageURL)
	require.Equal(t, "9a3a45d01531a20e89ac6ae10b0b0beb0492acd7216a368aa062d1a5fecaf9cd", (*b.Metadata.Component.Hashes)[0].Value, "sha256sum of it")
	var names []string
	for _, c := range *b.Components {
		names = append(names, c.PackageURL)
	}
	require.Equal(t, []string{"pkg:golang/std@1.26.8", "pkg:golang/github.com/beorn7/perks@v1.0.1", "pkg:golang/golang.org/x/time@v0.15.0"}, names)
	require.Equal(t, []cdx.Dependency{{Ref: purl, Dependencies: &names}}, *b.Dependencies)

	same, err := bom(info(t), []byte("binary"))
	require.NoError(t, err)
	require.Equal(t, string(bill), string(same))
	other, err := bom(info(t), []byte("binary2"))
	require.NoError(t, err)
	require.NotEqual(t, b.SerialNumber, decodeSerial(t, other))

	_, err = bom(info(t, "h1:bbrp", "h2:"), nil)
	require.ErrorContains(t, err, "golang.org/x/time")
}

func decodeSerial(t *testing.T, bill []byte) string {
	t.Helper()
	var b cdx.BOM
	require.NoError(t, json.Unmarshal(bill, &b))
	return b.SerialNumber
}

// schema16 returns the schema of CycloneDX 1.6, which its module for Go has with it.
func schema16(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := command(".", nil, "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	for url, name := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "schema", name))
		require.NoError(t, err)
		require.NoError(t, c.AddResource("http://cyclonedx.org/schema/"+url, parse(t, text)))
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	require.NoError(t, err)
	return s
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return value
}
