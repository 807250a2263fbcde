#!/bin/sh
# Installs the unpacked archive, or removes what it wrote down when it installed:
#
#   ./install.sh [PREFIX]               into PREFIX (default: /usr/local)
#   ./install.sh --uninstall [PREFIX]   removes exactly the files and directories that it made
#
# Not needed to try it: bin/rdmalab runs where it lies.
set -eu

# Below PREFIX. A line for each file and each directory that was made, and one, `above`, for PREFIX
# itself and each directory above it that was made.
manifest=share/doc/rdmalab/installed
new=''

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

make_above() {
    if [ ! -d "$1" ]; then
        make_above "$(dirname "$1")"
        mkdir "$1" || fail "no directory $1: name another PREFIX, or use sudo"
        new="${new}above
"
    fi
}

# make_directory PATH: below the prefix, with its parents.
make_directory() {
    if [ ! -d "$prefix/$1" ]; then
        case $1 in
        */*) make_directory "${1%/*}" ;;
        esac
        mkdir "$prefix/$1" || fail "no directory $prefix/$1: name another PREFIX, or use sudo"
        new="${new}directory $1
"
    fi
}

write_down() {
    printf '%s' "$new" >>"$prefix/$manifest" || fail "cannot write to $prefix: use sudo"
    new=''
}

action=install
if [ "${1:-}" = --uninstall ]; then
    action=uninstall
    shift
fi
case "${1:-}" in
-*)
    echo "install.sh: $1 is not known; see its first lines" >&2
    exit 2
    ;;
/* | '') prefix=${1:-/usr/local} ;;
*) prefix=$PWD/$1 ;;
esac

if [ "$action" = uninstall ]; then
    [ -f "$prefix/$manifest" ] || fail "nothing to remove: there is no list $prefix/$manifest"
    cd "$prefix"
    sed -n 's/^file //p' "$manifest" | while read -r file; do rm -f "$file"; done
    # In reverse order, children come before their parents. One with other files in it stays.
    directories=$(sed -n 's/^directory //p' "$manifest" | sort -ru)
    above=$(grep -c '^above$' "$manifest" || true)
    rm "$manifest"
    printf '%s\n' "$directories" | while read -r directory; do
        rmdir "$directory" 2>/dev/null || true
    done
    cd /
    left=$prefix
    while [ "$above" -gt 0 ] && rmdir "$left" 2>/dev/null; do
        left=$(dirname "$left")
        above=$((above - 1))
    done
    echo "removed from $prefix"
    exit
fi

cd "$(dirname "$0")"
make_above "$prefix"
make_directory "$(dirname "$manifest")"
write_down
for directory in $(find bin lib share -type d); do
    make_directory "$directory"
    write_down
done
find bin lib share -type f | while read -r file; do
    echo "file $file" >>"$prefix/$manifest"
    # Under another name first: a rdmalab that runs keeps its own file.
    cp -p "$file" "$prefix/$file.new"
    mv "$prefix/$file.new" "$prefix/$file"
done
echo "installed into $prefix; $prefix/bin/rdmalab runs it, ./install.sh --uninstall removes it"
