// Uses the faults that Go's own handlers turn into panics, beside the device's.
package main

// #cgo LDFLAGS: -libverbs
// #include "unmapped_copy.h"
import "C"

import (
	"fmt"
	"os"
)

// isCaught reports whether a nil pointer became a panic that was recovered.
func isCaught(pointer *int) (caught bool) {
	defer func() { caught = recover() != nil }()
	*pointer = 1
	return false
}

func main() {
	if C.register_page() != 0 {
		os.Exit(1)
	}
	for round := 0; round < 3; round++ {
		if !isCaught(nil) || C.copy_from_unmapped_memory() != 0 {
			os.Exit(1)
		}
	}
	fmt.Println("all passed")
}
