package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bom returns the bill of materials of a binary, in CycloneDX 1.6. The same binary has the same bill: it has no time, and its serial
// number follows from the checksum.
func bom(info *debug.BuildInfo, binary []byte) ([]byte, error) {
	sum := sha256.Sum256(binary)
	platform := url.Values{}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" {
			platform.Set(strings.ToLower(s.Key), s.Value)
		}
	}
	program := component(cdx.ComponentTypeApplication, info.Main.Path, info.Main.Version, hex.EncodeToString(sum[:]))
	program.PackageURL += "?" + platform.Encode()
	program.BOMRef = program.PackageURL

	modules := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		tree, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil || len(tree) != sha256.Size {
			return nil, fmt.Errorf("module %s has the checksum %q", m.Path, m.Sum)
		}
		modules = append(modules, component(cdx.ComponentTypeLibrary, m.Path, m.Version, hex.EncodeToString(tree)))
	}
	contains := cdx.Dependency{Ref: program.BOMRef, Dependencies: &[]string{}}
	for _, m := range modules {
		*contains.Dependencies = append(*contains.Dependencies, m.BOMRef)
	}

	b := cdx.NewBOM()
	b.SerialNumber = serial(sum)
	b.Metadata = &cdx.Metadata{Component: &program}
	b.Components = &modules
	b.Dependencies = &[]cdx.Dependency{contains}
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(b, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

// component describes a module. Its hash is that of the file, or the h1 sum that go.sum has, in hexadecimal digits.
func component(kind cdx.ComponentType, path, version, hash string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	c := cdx.Component{Type: kind, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
	if hash != "" {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
	}
	return c
}

// serial makes a UUID of version 8 from a checksum.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
