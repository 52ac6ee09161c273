# Plays the blocks of one page in one shell, like a reader who keeps a terminal open: variables, the working folder and
# background processes persist from block to block. The lines appended below are generated from the page.
#   $1  the folder with each block as a file; outputs and failures are written there
#   $2  the folder with the homes of other machines
set -E -o pipefail
# Started with `&` in a script, this shell ignores Ctrl-C, and a shell cannot trap a signal that was ignored when it
# started; nor could a page's server.
if [ -n "$(trap -p INT)" ]; then
  exec env --default-signal=INT bash "$0" "$@"
fi
play=$1 hosts=$2
groups=()

# Records block, file, line and status of the first failure.
failed() {
  [ -e "$play/failed" ] || printf '%s\n' "$*" > "$play/failed"
  exit 1
}

# Acts like Ctrl-C in each of their terminals.
end_all() {
  local group
  for group in "${groups[@]}"; do
    # A drained process has already ended by itself.
    if [ -e "$play/failed" ]; then kill -KILL -- "-$group"; else kill -INT -- "-$group"; fi 2>> "$play/driver.out" || true
    wait "$group" 2>> "$play/driver.out" || true
  done
  groups=()
  if [ -e "$play/failed" ]; then exit 1; fi
}

# Runs in a separate process group, as at a terminal. Returns once there is output.
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

# Variables set on another machine stay there.
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
