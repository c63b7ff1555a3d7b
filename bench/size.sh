#!/bin/sh
# Prints how large the command is, what a program that keeps leases in a folder
# depends on, and how long a build from nothing takes. Needs Go only.
# The modules must have been downloaded before, for a fair time.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM

bytes() { wc -c <"$1" | tr -d ' '; }

mkdir "$tmp/small"
cat >"$tmp/small/main.go" <<'GO'
package main

import (
	"context"

	"github.com/tenure-project/tenure"
)

func main() {
	c, err := tenure.Open(context.Background(), "file:leases")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	err = c.Do(context.Background(), "job", func(context.Context, *tenure.Lease) error { return nil })
	if err != nil {
		panic(err)
	}
}
GO
cat >"$tmp/empty.go" <<'GO'
package main

func main() { println("nothing") }
GO

build() { # directory, output, package
	(cd "$1" && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$tmp/$2" "$3")
}
build cmd/tenure tenure .
build . small.bin "$tmp/small/main.go"
build . empty.bin "$tmp/empty.go"
echo "the command, stripped:                     $(bytes "$tmp/tenure") bytes"
echo "a program with core and filestore:         $(bytes "$tmp/small.bin") bytes"
echo "a program that does nothing:               $(bytes "$tmp/empty.bin") bytes"

deps() { # directory, package: modules other than this project's, packages of the standard library
	(cd "$1" && go list -deps -f '{{if .Module}}{{.Module.Path}}{{else}}std{{end}}' "$2")
}
echo "modules beside this project's, in that program:"
deps . "$tmp/small/main.go" | grep -v -e '^std$' -e '^command-line' -e '^github.com/tenure-project/tenure' | sort | uniq -c |
	sed 's/^ *\([0-9]*\) \(.*\)/  \2 (\1 packages)/'
echo "modules beside this project's, in the command:"
deps cmd/tenure . | grep -v -e '^std$' -e '^command-line' -e '^github.com/tenure-project/tenure' | sort | uniq -c |
	sed 's/^ *\([0-9]*\) \(.*\)/  \2 (\1 packages)/'

cold() { # directory, package: seconds to build it and all it needs, the standard library too
	cache=$(mktemp -d "$tmp/cache.XXXXXX")
	start=$(date +%s)
	(cd "$1" && CGO_ENABLED=0 GOCACHE=$cache go build -trimpath -o /dev/null "$2")
	echo "$(($(date +%s) - start)) s"
	rm -rf "$cache"
}
echo "cold build of that program, with the standard library: $(cold . "$tmp/small/main.go")"
echo "cold build of the command, with the standard library:  $(cold cmd/tenure .)"
