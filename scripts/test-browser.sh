#!/bin/sh
# Drive JupyterLab in Chromium as a person would. Run by scripts/run.sh.
#
#   scripts/test-browser.sh [install | --screenshots | --update-images | FILE ...]
#
# `install` stops where the tests would begin; --screenshots also pictures every notebook into build/screenshots,
# and --update-images makes the pictures of README and docs/ again.
#
# Chromium is the system's. Where it is missing, it is installed with apt in CI (CI is set) or by
# root, and these tests fail if that does not help. On anybody else's machine nothing is installed
# without asking: the tests are skipped, which the last lines say.
set -eu

find_chromium() {
    for name in "${ICEKIT_CHROMIUM:-chromium}" chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$name" >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    mac="/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    if [ -x "$mac" ]; then
        echo "$mac"
        return 0
    fi
    return 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

is_ours() {
    [ -n "${CI:-}" ] || [ "$(id -u)" -eq 0 ]
}

if ! find_chromium >/dev/null && is_ours && command -v apt-get >/dev/null 2>&1; then
    echo "icekit: installing chromium with apt-get" >&2
    as_root apt-get update -qq >/dev/null 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 || true
fi
if ! ICEKIT_CHROMIUM=$(find_chromium); then
    if is_ours; then how="FAIL"; else how="were SKIPPED"; fi
    echo "icekit: the browser tests $how: no Chromium was found. Install one, or name one in ICEKIT_CHROMIUM:" >&2
    echo "    sudo apt-get install chromium     (a Mac: brew install --cask chromium)" >&2
    if is_ours; then exit 1; fi
    exit 0
fi
export ICEKIT_CHROMIUM
if [ "${1:-}" = install ]; then exit 0; fi
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then set -- tests/browser "$@"; fi
exec python -m pytest -m browser "$@"
