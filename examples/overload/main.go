package main

import (
	"os"

	"github.com/spillway-go/spillway/internal/overload"
)

func main() {
	os.Exit(overload.Main(overload.Config{DefaultGuards: "none"}))
}
