package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"github.com/spillway-go/spillway/rules/yaml"
)

const maxFile = 1 << 20 // bytes

// Load reads a file. The error names the file and the field.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse reads the content of a file, fills in the defaults and checks it. The error names the field and the value.
func Parse(data []byte) (*Config, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("a file must be at most %d bytes, got %d", maxFile, len(data))
	}
	text, err := yaml.JSON(data)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		text = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	c := new(Config)
	if err := decode(root, reflect.ValueOf(c).Elem(), ""); err != nil {
		return nil, err
	}
	c.setDefaults()
	return c, c.validate()
}
