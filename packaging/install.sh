#!/bin/sh
# Installs the unpacked archive, or removes it again:
#
#   ./install.sh [PREFIX]               into PREFIX (default: /usr/local)
#   ./install.sh --uninstall [PREFIX]   removes exactly the files and directories that it made
#
# Not needed to try it: bin/rdmalab runs where it lies.
set -eu

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
cd "$(dirname "$0")"
# The directories that were not there before, one a line.
list=$prefix/share/doc/rdmalab/directories

# make_directory PATH: with its parents; adds to $made what was not there.
make_directory() {
    if [ ! -d "$1" ]; then
        make_directory "$(dirname "$1")"
        mkdir "$1"
        made="$made$1
"
    fi
}

if [ "$action" = uninstall ]; then
    find bin lib share -type f | while read -r file; do rm -f "$prefix/$file"; done
    made=$(sort -ru "$list" 2>/dev/null || true)
    rm -f "$list"
    # In reverse order, children come before their parents. One with other files in it stays.
    printf '%s\n' "$made" | while read -r directory; do
        rmdir "$directory" 2>/dev/null || true
    done
    echo "removed from $prefix"
    exit
fi

made=''
make_directory "$(dirname "$list")"
for directory in $(find bin lib share -type d); do
    make_directory "$prefix/$directory"
done
printf '%s' "$made" >>"$list"
find bin lib share -type f | while read -r file; do
    # Under another name first: a rdmalab that runs keeps its own file.
    cp -p "$file" "$prefix/$file.new"
    mv "$prefix/$file.new" "$prefix/$file"
done
echo "installed into $prefix; $prefix/bin/rdmalab runs it, ./install.sh --uninstall removes it"
