#!/usr/bin/env bash
# Start an SGLang server in the foreground; SIGTERM stops it.
# Written by sglforge: change the profile and render again instead of editing this file.
# Values are literal: whatever looks like an expansion or an escape in one stays text.
# shellcheck disable=SC1003,SC2016
# Set by the rules of target sm120 for SGLang 0.5.9:
#   deepgemm-no-sm120 does not apply, the profile says: its $(id) 'kernels' are `here`
#   fp8-gemm-no-sm120: --fp8-gemm-backend triton
#     Left to itself 0.5.9 takes DeepGEMM for block FP8, and without DeepGEMM FlashInfer's TensorRT-LLM kernels,
#     which FlashInfer 0.6.3 has for 10.0 and 10.3 only. Triton's run everywhere, and are what 0.5.10 chooses on
#     SM120.
#     sglang/srt/layers/quantization/fp8_utils.py (_dispatch_auto_backend); sgl-project/sglang#18870,
#     sgl-project/sglang#19721
#   fp4-gemm-cutlass-nan: --fp4-gemm-backend flashinfer_cudnn
#     0.5.9 takes FlashInfer's CUTLASS kernels for NVFP4, and FlashInfer 0.6.3 compiles them for SM120 without the
#     flag that makes dependent launches wait: rows of a mixed batch come out as NaN. cuDNN's kernels do not; an old
#     cuDNN refuses them loudly (SGLang asks for 9.15).
#     sglang/srt/server_args.py (fp4_gemm_runner_backend), sglang/srt/layers/quantization/fp4_utils.py;
#     sgl-project/sglang#20047, flashinfer-ai/flashinfer#2708, flashinfer-ai/flashinfer#2577
set -euo pipefail

# The names begin with sf_ so that no variable of the caller's environment changes on its way to the server.
sf_profile=old-sglang
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
[[ -d /srv/models/big ]] ||
  sf_refuse 83 "there is no model folder "/srv/models/big
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
  NCCL_P2P_LEVEL=SYS
)
sf_command=(
  /srv/sglforge/environments/0123456789ab/venv/bin/python -P -m sglang.launch_server
  --model-path /srv/models/big
  --host 127.0.0.1
  --port 30000
  --tp-size 8
  --fp8-gemm-backend triton
  --fp4-gemm-backend flashinfer_cudnn
)

{
  printf 'sglforge: starting profile %s in environment %s on %s:%s\n' \
    "$sf_profile" "$sf_environment" "$sf_host" "$sf_port"
  printf 'sglforge: variables:'
  printf ' %s' PYTHONUNBUFFERED NCCL_P2P_LEVEL
  printf '\nsglforge: command:'
  printf ' %q' "${sf_command[@]}"
  printf '\n'
} >&2

# The caller's environment stays, the profile's variables win, and no other Python leaks in.
exec env -u PYTHONHOME -u PYTHONPATH -u VIRTUAL_ENV "${sf_variables[@]}" "${sf_command[@]}"
