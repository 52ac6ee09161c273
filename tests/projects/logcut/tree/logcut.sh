#!/bin/sh
# logcut LEVEL FILE...: prints lines of a level or a graver one.
set -eu

usage() {
    echo "usage: logcut.sh LEVEL FILE..." >&2
    exit 2
}

[ $# -ge 2 ] || usage

case $1 in
debug) pattern='DEBUG|INFO|WARN|ERROR' ;;
info) pattern='INFO|WARN|ERROR' ;;
warn) pattern='WARN|ERROR' ;;
error) pattern='ERROR' ;;
*) usage ;;
esac
shift

for file in $*; do
    grep -E "^[^ ]+ ($pattern) " $file || true
done
