#!/bin/sh
# Installs the unpacked archive, or removes it again:
#
#   ./install.sh [PREFIX]               into PREFIX (default: /usr/local)
#   ./install.sh --uninstall [PREFIX]   removes exactly the files that came with it
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
esac
prefix=${1:-/usr/local}
cd "$(dirname "$0")"

find bin lib share -type f | while read -r file; do
    if [ "$action" = install ]; then
        mkdir -p "$prefix/$(dirname "$file")"
        # Under another name first: a rdmalab that runs keeps its own file.
        cp -p "$file" "$prefix/$file.new"
        mv "$prefix/$file.new" "$prefix/$file"
    else
        rm -f "$prefix/$file"
    fi
done
if [ "$action" = uninstall ]; then
    rmdir "$prefix/lib/rdmalab" "$prefix/share/doc/rdmalab" 2>/dev/null || true
    echo "removed from $prefix"
else
    echo "installed into $prefix; $prefix/bin/rdmalab runs it, ./install.sh --uninstall removes it"
fi
