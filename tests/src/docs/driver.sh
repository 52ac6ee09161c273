# Plays the blocks of one page in one shell, as a reader does who keeps a terminal open: variables, the folder and what
# goes on in the background stay from block to block. What follows below is made of the page.
#   $1  the folder that has each block as a file; outputs and what failed are written there
#   $2  the folder that has the homes of other machines
set -E -o pipefail
# Who starts this behind `&` in a script has it ignore Ctrl-C, and no shell can trap what it ignored when it began; nor
# could a page's server that is one.
if [ -n "$(trap -p INT)" ]; then
  exec env --default-signal=INT bash "$0" "$@"
fi
play=$1 hosts=$2
groups=()

# block, file, line and status of what went wrong first
failed() {
  [ -e "$play/failed" ] || printf '%s\n' "$*" > "$play/failed"
  exit 1
}

# As Ctrl-C in each of their terminals does.
end_all() {
  local group
  for group in "${groups[@]}"; do
    # One that was drained has ended by itself.
    if [ -e "$play/failed" ]; then kill -KILL -- "-$group"; else kill -INT -- "-$group"; fi 2>> "$play/driver.out" || true
    wait "$group" 2>> "$play/driver.out" || true
  done
  groups=()
  if [ -e "$play/failed" ]; then exit 1; fi
}

# Goes on in a group of its own, as at a terminal; there once it has said something.
background() {
  set -m
  ( trap : INT; "$@" ) > "$play/$step.out" 2>&1 < /dev/null &
  set +m
  groups+=("$!")
  until [ -s "$play/$step.out" ]; do
    kill -0 "$!" 2>> "$play/driver.out" || failed "$step" end 0 "it ended and said nothing"
    sleep 0.02
  done
}

# What is set on another machine stays there.
on_host() (
  trap : INT
  mkdir -p -m 700 "$hosts/$1"
  export HOME=$hosts/$1
  cd "$HOME"
  . "$play/$step.sh"
)

here() {
  . "$play/$step.sh"
}

must_fail() {
  local wanted=$1 status=0
  shift
  "$@" > "$play/$step.out" 2>&1 || status=$?
  case $wanted in
    any) [ "$status" != 0 ] || failed "$step" end 0 "it must fail, and it did not" ;;
    *) [ "$status" = "$wanted" ] || failed "$step" end "$status" "it must fail with exit code $wanted" ;;
  esac
}

trap end_all EXIT
trap 'failed "$step" "${BASH_SOURCE[0]}" "$LINENO" "$?"' ERR
