//go:build tools

package programs

import _ "github.com/birdayz/kaf/cmd/kaf"
