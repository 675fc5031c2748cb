#!/usr/bin/env bash
# Start an SGLang server in the foreground; SIGTERM stops it.
# Written by sglforge: change the profile and render again instead of editing this file.
# Values are literal: whatever looks like an expansion or an escape in one stays text.
# shellcheck disable=SC1003,SC2016
set -euo pipefail

# The names begin with sf_ so that no variable of the caller's environment changes on its way to the server.
sf_profile=plain
sf_environment=release-0.5.23.cpu
sf_python=/srv/sglforge/environments/0123456789ab/venv/bin/python
sf_receipt=/srv/sglforge/environments/0123456789ab/receipt.json
sf_receipt_sha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
sf_host=127.0.0.1
sf_port=30000

sf_refuse() {
  printf 'sglforge: profile %s is not started: %s\n' "$sf_profile" "$2" >&2
  exit "$1"
}

[[ -x $sf_python && -f $sf_receipt ]] ||
  sf_refuse 81 "environment $sf_environment is not installed: $sf_python or its receipt is missing"
sf_actual=$(sha256sum <"$sf_receipt")
[[ ${sf_actual%% *} == "$sf_receipt_sha256" ]] ||
  sf_refuse 82 "environment $sf_environment has changed since this script was written"
if (exec 3<>"/dev/tcp/$sf_host/$sf_port") 2>/dev/null; then
  sf_refuse 84 "port $sf_port of $sf_host is taken"
fi

# A server asks itself during warm-up; a proxy would answer instead.
sf_bypass=${no_proxy:-${NO_PROXY:-}}
sf_bypass=127.0.0.1,localhost${sf_bypass:+,$sf_bypass}
sf_variables=(
  "no_proxy=$sf_bypass"
  "NO_PROXY=$sf_bypass"
  PYTHONUNBUFFERED=1
)
sf_command=(
  /srv/sglforge/environments/0123456789ab/venv/bin/python -P -m sglang.launch_server
  --model-path somebody/something
  --host 127.0.0.1
  --port 30000
)

{
  printf 'sglforge: starting profile %s in environment %s on %s:%s\n' \
    "$sf_profile" "$sf_environment" "$sf_host" "$sf_port"
  printf 'sglforge: variables:'
  printf ' %s' PYTHONUNBUFFERED
  printf '\nsglforge: command:'
  printf ' %q' "${sf_command[@]}"
  printf '\n'
} >&2

# The caller's environment stays, the profile's variables win, and no other Python leaks in.
exec env -u PYTHONHOME -u PYTHONPATH -u VIRTUAL_ENV "${sf_variables[@]}" "${sf_command[@]}"
