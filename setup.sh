#!/bin/bash
# Installs what building and testing need: Debian packages, and the Python packages of
# pyproject.toml in build/venv. Called by `make setup`; does nothing that was done before.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
    printf 'error: could not %s\n  said: %s\n  do:   %s\n' "$1" "$2" "$3" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# shellcheck source=/dev/null
. /etc/os-release
case "${ID:-}:${VERSION_ID:-}" in
debian:12 | debian:13) ;;
*) fail "set up this machine" "it runs ${PRETTY_NAME:-an unknown system}" \
    "use Debian 12 or 13, or install the packages of packages.txt and vm/packages.txt by hand" ;;
esac

missing=()
while read -r name releases; do
    case "$name" in '' | '#'*) continue ;; esac
    [[ " $releases " == *" $VERSION_ID "* ]] || continue
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
        missing+=("$name")
done < <(cat packages.txt vm/packages.txt)

if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "install packages" "not root, and no sudo" "run as root: make setup"
    mkdir -p build
    {
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "${missing[@]}"
    } >build/setup.log 2>&1 ||
        fail "install ${missing[*]}" "$(grep -m1 '^E:' build/setup.log || tail -n 1 build/setup.log)" \
            "look at build/setup.log; check the network and /etc/apt"
fi

if [ ! -x build/venv/bin/python ] || [ pyproject.toml -nt build/venv/.done ]; then
    echo "setup: Python packages in build/venv"
    mkdir -p build
    {
        /usr/bin/python3 -m venv build/venv
        build/venv/bin/pip install --quiet --editable '.[dev,report]'
    } >build/setup-python.log 2>&1 ||
        fail "install the Python packages" \
            "$(grep -m1 -E '^ *ERROR:' build/setup-python.log || tail -n 1 build/setup-python.log)" \
            "look at build/setup-python.log; check the network and pip's configuration"
    touch build/venv/.done
fi
