#!/usr/bin/env bash
# Start an SGLang server in the foreground; SIGTERM stops it.
# Written by sglforge: change the profile and render again instead of editing this file.
# Values are literal: whatever looks like an expansion or an escape in one stays text.
# shellcheck disable=SC1003,SC2016
# Set by the rules of target sm120 for SGLang 0.5.23:
#   pcie-ipc-allreduce: SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1
#     Without NVLink each all-reduce of a decode step is NCCL's. FlashInfer's PCIe kernels serve bfloat16 on 2, 4 or
#     8 GPUs; SGLang has them switched off, and leaves what they do not serve with NCCL.
#     sglang/srt/distributed/device_communicators/pcie_ipc_ar.py; sgl-project/sglang#34528,
#     flashinfer-ai/flashinfer#4393
set -euo pipefail

# The names begin with sf_ so that no variable of the caller's environment changes on its way to the server.
sf_profile=speculative
sf_environment=release-0.5.23.cpu
sf_python=/srv/sglforge/environments/0123456789ab/venv/bin/python
sf_receipt=/srv/sglforge/environments/0123456789ab/receipt.json
sf_receipt_sha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
sf_host=127.0.0.1
sf_port=8000

sf_refuse() {
  printf 'sglforge: profile %s is not started: %s\n' "$sf_profile" "$2" >&2
  exit "$1"
}

[[ -x $sf_python && -f $sf_receipt ]] ||
  sf_refuse 81 "environment $sf_environment is not installed: $sf_python or its receipt is missing"
sf_actual=$(sha256sum <"$sf_receipt")
[[ ${sf_actual%% *} == "$sf_receipt_sha256" ]] ||
  sf_refuse 82 "environment $sf_environment has changed since this script was written"
[[ -d /srv/models/big ]] ||
  sf_refuse 83 "there is no model folder "/srv/models/big
[[ -d /srv/models/draft ]] ||
  sf_refuse 83 "there is no model folder "/srv/models/draft
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
  OMP_NUM_THREADS=8
  NCCL_P2P_LEVEL=SYS
  SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1
)
sf_command=(
  /srv/sglforge/environments/0123456789ab/venv/bin/python -P -m sglang.launch_server
  --model-path /srv/models/big
  --host 0.0.0.0
  --port 8000
  --served-model-name big
  --tp-size 8
  --trust-remote-code
  --mem-fraction-static 0.85
  --cuda-graph-bs-decode 1 2 4
  --speculative-algorithm EAGLE3
  --speculative-draft-model-path /srv/models/draft
  --speculative-num-steps 3
  --speculative-eagle-topk 1
  --speculative-num-draft-tokens 4
)

{
  printf 'sglforge: starting profile %s in environment %s on %s:%s\n' \
    "$sf_profile" "$sf_environment" "$sf_host" "$sf_port"
  printf 'sglforge: variables:'
  printf ' %s' PYTHONUNBUFFERED OMP_NUM_THREADS NCCL_P2P_LEVEL SGLANG_ENABLE_PCIE_IPC_ALLREDUCE
  printf '\nsglforge: command:'
  printf ' %q' "${sf_command[@]}"
  printf '\n'
} >&2

# The caller's environment stays, the profile's variables win, and no other Python leaks in.
exec env -u PYTHONHOME -u PYTHONPATH -u VIRTUAL_ENV "${sf_variables[@]}" "${sf_command[@]}"
