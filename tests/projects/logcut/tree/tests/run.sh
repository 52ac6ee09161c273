#!/bin/sh
# Runs the checks, all or those of one group: sh tests/run.sh [levels|names|count]
set -u
cd "$(dirname "$0")/.."
group=${1:-all}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

check() { # NAME EXPECTED ACTUAL
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
        echo "ok - $1"
    else
        failed=$((failed + 1))
        echo "not ok - $1"
        echo "  expected: $2"
        echo "  actual:   $3"
    fi
}

wants() { [ "$group" = all ] || [ "$group" = "$1" ]; }

cat >"$work/app.log" <<'LOG'
10:00 INFO started
10:01 DEBUG cache is cold
10:02 WARN disk is slow
10:03 ERROR disk is gone
10:04 INFO an ERROR in the text is no level
LOG
cp "$work/app.log" "$work/my app.log"

if wants levels; then
    check "error prints errors only" "10:03 ERROR disk is gone" "$(sh logcut.sh error "$work/app.log")"
    check "warn prints two lines" 2 "$(sh logcut.sh warn "$work/app.log" | wc -l | tr -d ' ')"
    check "an unknown level is refused" 2 "$(sh logcut.sh loud "$work/app.log" >/dev/null 2>&1; echo $?)"
fi
if wants names; then
    check "a file name with a blank" "10:03 ERROR disk is gone" "$(sh logcut.sh error "$work/my app.log" 2>&1)"
    cd "$work" || exit 1
    touch -- '*.log'
    check "a file name that is a pattern" "" "$(sh "$OLDPWD/logcut.sh" error '*.log' 2>&1)"
    cd "$OLDPWD" || exit 1
    check "a missing file fails" 2 "$(sh logcut.sh error "$work/none.log" >/dev/null 2>&1; echo $?)"
fi
if wants count; then
    check "--count counts per level" "DEBUG 1
INFO 2
WARN 1
ERROR 1" "$(sh logcut.sh --count "$work/app.log")"
    check "--count adds files up" "DEBUG 2
INFO 4
WARN 2
ERROR 2" "$(sh logcut.sh --count "$work/app.log" "$work/app.log")"
    check "--count needs a file" 2 "$(sh logcut.sh --count >/dev/null 2>&1; echo $?)"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
