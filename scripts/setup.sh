#!/bin/sh
# Make the environment that icekit runs in: Python packages in .venv, and for Spark a Java that it runs on.
#
#   scripts/setup.sh [EXTRAS]  # of pyproject.toml, separated by commas, such as report,spark
#
# Packages come at the exact versions of constraints.txt, and are installed again only when that or
# pyproject.toml has changed since. What it finds is left for scripts/run.sh in .venv/java-home. Exit status 2: something is missing that only a person
# can install; the last line is the command for it.
set -eu
cd "$(dirname "$0")/.."
extras=${1:-}

# Spark 4.1 runs on Java 17 and later, up to 22: Java 23 took away a call that its Hadoop makes.
JAVA_OLDEST=17
JAVA_NEWEST=22

say() { echo "icekit: $*" >&2; }

stop() {
    say "$1"
    echo "    $2" >&2
    exit 2
}

seconds_since() { echo $(($(date +%s) - $1)); }

# Say what is waited for every ten seconds, at a terminal, until tock. It ends with this script, however that ends.
ticker=
tick() {
    [ -t 2 ] || return 0
    ticking=$(date +%s)
    (while sleep 10 && kill -0 $$ 2>/dev/null; do say "still $1 ($(seconds_since "$ticking") s)"; done) >&2 &
    ticker=$!
}
tock() {
    [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
    ticker=
}
trap tock EXIT

# --- apt, where there is one and we may use it -----------------------------------------------

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_apt() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

apt_updated=
apt_install() {
    say "installing $* with apt-get"
    tick "installing $*"
    if [ -z "$apt_updated" ]; then
        as_root apt-get update -qq >/dev/null 2>&1 || true  # one broken source does not spoil the others
        apt_updated=yes
    fi
    apt_failed=
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@" >/dev/null 2>&1 || apt_failed=yes
    tock
    [ -z "$apt_failed" ]
}

# --- Python ----------------------------------------------------------------------------------

python_is() { "$1" -c "import sys; sys.exit(not ($2))" 2>/dev/null; }

# Versions that Spark 4.1 is declared for come first, a newer one is better than none.
find_python() {
    for range in '(3, 11) <= sys.version_info < (3, 15)' '(3, 11) <= sys.version_info'; do
        for python in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
            if python_is "$python" "$range"; then return 0; fi
        done
    done
    python=
    return 1
}

can_make_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

make_venv() {
    if ! find_python && can_apt; then
        apt_install python3 python3-venv || true
        find_python || apt_install python3.11 python3.11-venv || true
        find_python || true
    fi
    if [ -z "$python" ]; then
        case $(uname) in
            Darwin) stop "Python 3.11 or newer is needed and was not found; install it:" "brew install python@3.13" ;;
            *) stop "Python 3.11 or newer is needed and was not found; install it, for example:" "sudo apt-get install python3.11 python3.11-venv" ;;
        esac
    fi
    if ! can_make_venv; then
        # Debian and Ubuntu package a part of Python's standard library apart.
        own=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if can_apt; then
            apt_install "$own" || apt_install python3-venv || true
        fi
        can_make_venv || stop "$python cannot make a virtual environment; install what is missing:" "sudo apt-get install $own"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

# --- packages --------------------------------------------------------------------------------

installed_for() { pwd && cat pyproject.toml constraints.txt; }

# Python compiles a module when it is first imported, which few of them ever are.
pip_install() { .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-compile "$@"; }

# A third of pip's time. uv reads none of pip's settings: where these name an index, pip installs.
uv_install() {
    case $(.venv/bin/python -m pip config list) in *index*) return 1 ;; esac
    pip_install --constraint constraints.txt uv || return
    .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint constraints.txt --editable "$package"
}

install_packages() {
    stamp=.venv/installed-${extras:-base}
    # dev has all extras, and test all that commands need.
    case ,$extras, in *,dev,* | *,docs,*) with= ;; *) with=.venv/installed-test ;; esac
    for done in "$stamp" .venv/installed-dev $with; do
        if [ -f "$done" ] && [ "$(cat "$done")" = "$(installed_for)" ]; then return 0; fi
    done
    start=$(date +%s)
    package=.${extras:+[$extras]}
    say "installing Python packages${extras:+ ($extras)}; the first time takes a minute or more"
    tick "installing Python packages"
    .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null
    if ! uv_install >&2; then
        say "uv could not install the packages; pip, which knows more settings, tries again"
        pip_install --constraint constraints.txt --editable "$package" >&2
    fi
    tock
    installed_for >"$stamp"
    say "Python packages are installed ($(seconds_since "$start") s)"
}

# --- Java ------------------------------------------------------------------------------------

# The home of a java command that Spark runs on, or nothing.
java_home_of() {
    told=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$told" | sed -n 's/^ *java\.specification\.version = //p')
    case $version in '' | *[!0-9]*) return 1 ;; esac
    if [ "$version" -lt $JAVA_OLDEST ] || [ "$version" -gt $JAVA_NEWEST ]; then return 1; fi
    printf '%s\n' "$told" | sed -n 's/^ *java\.home = //p'
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        java_home_of "$JAVA_HOME/bin/java" && return 0
        say "JAVA_HOME ($JAVA_HOME) is not a Java $JAVA_OLDEST to $JAVA_NEWEST; looking for another"
    fi
    if command -v java >/dev/null 2>&1; then
        java_home_of java && return 0
    fi
    for home in \
        "${CONDA_PREFIX:-/nowhere}"/lib/jvm /usr/lib/jvm/* "${HOME:-/nowhere}"/.sdkman/candidates/java/* \
        /opt/homebrew/opt/openjdk@* /usr/local/opt/openjdk@* /home/linuxbrew/.linuxbrew/opt/openjdk@* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        if [ -x "$home/bin/java" ]; then
            java_home_of "$home/bin/java" && return 0
        fi
    done
    if [ -x /usr/libexec/java_home ]; then
        for version in 17 21; do
            home=$(/usr/libexec/java_home -v $version 2>/dev/null) || continue
            java_home_of "$home/bin/java" && return 0
        done
    fi
    return 1
}

need_java() {
    if ! java_home=$(find_java); then
        if can_apt; then
            for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
                if apt_install $package && java_home=$(find_java 2>/dev/null); then break; fi
            done
        fi
    fi
    if [ -z "$java_home" ]; then
        needed="Spark needs Java $JAVA_OLDEST to $JAVA_NEWEST and none was found; install it and try again:"
        if [ "$(uname)" = Darwin ]; then stop "$needed" "brew install openjdk@17"; fi
        if command -v apt-get >/dev/null 2>&1; then
            package=openjdk-17-jre-headless
            apt-cache show $package >/dev/null 2>&1 || package=openjdk-21-jre-headless
            stop "$needed" "sudo apt-get update && sudo apt-get install $package"
        fi
        stop "$needed" "your package manager's OpenJDK 17 or 21, or set JAVA_HOME to one"
    fi
    echo "$java_home" >.venv/java-home
}

# A .venv that is there and runs is somebody's and is kept.
if ! python_is .venv/bin/python True; then
    make_venv
elif ! python_is .venv/bin/python '(3, 11) <= sys.version_info'; then
    stop ".venv has $(.venv/bin/python --version) and icekit needs 3.11 or newer; remove it and try again:" "rm -r .venv"
fi
# Before packages: who lacks it learns so at once.
case ,$extras, in *,spark,* | *,connect,* | *,all,* | *,test,* | *,dev,*) need_java ;; esac
install_packages
