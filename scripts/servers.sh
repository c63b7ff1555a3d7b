#!/bin/sh
# Puts the servers that tests talk to under .cache, as far as this machine lets
# us: a Go module, an npm package, a Debian package. What could not be had is
# told here and again by the tests that miss it; with CI set they fail.
set -u
cd "$(dirname "$0")/.."
bin="$PWD/.cache/bin"
mkdir -p "$bin"
missing=""

versitygw=v1.8.0
if [ ! -x "$bin/versitygw-$versitygw" ]; then
	if GOBIN="$bin" GOWORK=off go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" >"$bin/versitygw.log" 2>&1; then
		mv "$bin/versitygw" "$bin/versitygw-$versitygw"
	else
		missing="$missing versitygw(see .cache/bin/versitygw.log)"
	fi
fi

azurite=3.37.0
if [ ! -f ".cache/azurite-$azurite/node_modules/azurite/dist/src/blob/main.js" ]; then
	if command -v npm >/dev/null 2>&1; then
		mkdir -p ".cache/azurite-$azurite"
		npm install --prefix ".cache/azurite-$azurite" --no-audit --no-fund "azurite@$azurite" >"$bin/azurite.log" 2>&1 ||
			missing="$missing azurite(see .cache/bin/azurite.log)"
	else
		missing="$missing azurite(needs npm)"
	fi
fi

if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null 2>&1; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; } \
			>"$bin/postgresql.log" 2>&1 || missing="$missing postgresql(see .cache/bin/postgresql.log)"
	else
		missing="$missing postgresql(install its server package)"
	fi
fi

if ! command -v pgbouncer >/dev/null 2>&1 && [ ! -x /usr/sbin/pgbouncer ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends pgbouncer; } \
			>"$bin/pgbouncer.log" 2>&1 || missing="$missing pgbouncer(see .cache/bin/pgbouncer.log)"
	else
		missing="$missing pgbouncer(install its package)"
	fi
fi

if [ -n "$missing" ]; then
	echo "servers that tests will miss:$missing"
	[ -z "${CI:-}" ] || exit 1
fi
