#!/bin/sh
# usage: find_java.sh FOLDER
#
# Print the JAVA_HOME of a Java that Spark runs on, and on stderr what was found. Looked for in this
# order: $JAVA_HOME, the PATH, FOLDER (a JDK that an earlier run put there), /usr/lib/jvm. Where none
# is usable, get one: as root Debian's package, else the same package unpacked into FOLDER. Where that
# fails too, say the one line to run. Asks nothing.
set -eu

OLDEST=17
PACKAGES="openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless"
folder=$1

note() {
    printf 'java: %s\n' "$*" >&2
}

# Print "<major> <home>" if the command $1 is a Java that Spark can use, else say why it is not.
examine() {
    settings=$("$1" -XshowSettings:properties -version 2>&1) || {
        note "$1 does not start"
        return 1
    }
    home=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p')
    major=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    major=${major#1.}
    if [ "${major:-0}" -lt "$OLDEST" ]; then
        note "$1 is Java ${major:-unknown}, too old: $OLDEST or later is needed"
        return 1
    fi
    # Spark passes --add-modules=jdk.incubator.vector; trimmed runtimes lack the module and do not start.
    if ! "$home/bin/java" --list-modules | grep -q '^jdk\.incubator\.vector'; then
        note "$1 lacks the module jdk.incubator.vector that Spark needs"
        return 1
    fi
    printf '%s %s\n' "$major" "$home"
}

# Print the home of the first usable Java.
find_java() {
    set -- "$folder"/usr/lib/jvm/*/bin/java /usr/lib/jvm/*/bin/java
    if on_path=$(command -v java); then
        set -- "$on_path" "$@"
    fi
    if [ -n "${JAVA_HOME:-}" ]; then
        set -- "$JAVA_HOME/bin/java" "$@"
    fi
    for java in "$@"; do
        [ -x "$java" ] || continue
        if found=$(examine "$java"); then
            note "Java ${found%% *} in ${found#* }"
            printf '%s\n' "${found#* }"
            return 0
        fi
    done
    return 1
}

install_package() {
    note "none is usable; installing Debian's package"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null || return 1
    for package in $PACKAGES; do
        apt-get install -qq -y --no-install-recommends "$package" </dev/null >/dev/null && return 0
    done
    return 1
}

# Unpack the package without root: lists and downloads are kept in a private folder.
unpack_package() {
    note "none is usable; unpacking Debian's package into $folder"
    mkdir -p "$folder/.apt/lists/partial" "$folder/.apt/archives/partial"
    private=$(cd "$folder/.apt" && pwd)
    set -- -qq -o "Dir::State::Lists=$private/lists" -o "Dir::Cache=$private" -o Debug::NoLocking=1
    apt-get "$@" update >/dev/null || return 1
    for package in $PACKAGES; do
        (cd "$private" && apt-get "$@" download "$package") >/dev/null 2>&1 || continue
        dpkg-deb -x "$private/$package"_*.deb "$folder" || return 1
        break
    done
    rm -rf "$private"
    relink
}

# The package keeps its settings in /etc and links to them by absolute path: point those links into
# $folder. What stays dangling is the list of certificates, which the package makes when installed:
# this Java runs Spark, but cannot open TLS connections.
relink() {
    root=$(cd "$folder" && pwd)
    find "$root" -type l -lname '/*' | while IFS= read -r link; do
        target=$root$(readlink "$link")
        if [ -e "$target" ] || [ -L "$target" ]; then
            ln -sfnr "$target" "$link"
        fi
    done
}

find_java && exit 0

if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then
        install_package && find_java && exit 0
    else
        unpack_package && find_java && exit 0
    fi
    note "Java $OLDEST or later is missing and could not be put into place; run this line, then try again:"
    note "    sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless || sudo apt-get install -y default-jre-headless"
else
    note "Java $OLDEST or later is missing; install one and run: export JAVA_HOME=/where/it/is"
fi
exit 1
