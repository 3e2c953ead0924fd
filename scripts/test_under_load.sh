#!/usr/bin/env bash
# The tests beside four busy processes: none may depend on how fast it runs. Arguments go to pytest.
#     scripts/test_under_load.sh [tests/jobs]
set -euo pipefail
cd "$(dirname "$0")/.."
busy=()
trap 'kill "${busy[@]}"' EXIT
for _ in 1 2 3 4; do
  while :; do :; done &
  busy+=($!)
done
python -m pytest "$@"
