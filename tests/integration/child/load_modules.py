"""Load modules through FlashInfer itself, with compilation at run time forbidden; print what became of each."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

os.environ["FLASHINFER_DISABLE_JIT"] = "1"

from flashinfer import aot
from flashinfer.jit import comm, env

comm.gen_dcp_lse_reduce_module = lambda: SimpleNamespace(name="dcp_lse_reduce")
config = aot.get_default_config()
dimensions = ("f16_dtype", "f8_dtype", "fa2_head_dim", "fa3_head_dim", "use_sliding_window", "use_logits_soft_cap")
families = ("add_comm", "add_gemma", "add_oai_oss", "add_moe", "add_act", "add_misc", "add_xqa")
found = aot.gen_all_modules(
    *(config[name] for name in dimensions), aot.detect_sm_capabilities(), *(config[name] for name in families)
)
specs = {spec.name: spec for spec in found}
said = {}
for name in [*sorted(path.name for path in env.FLASHINFER_AOT_DIR.iterdir()), *sys.argv[1:]]:
    try:
        specs[name].build_and_load()
        said[name] = "loaded"
    except Exception as error:  # noqa: BLE001 - it is told
        said[name] = type(error).__name__
print(json.dumps(said))
