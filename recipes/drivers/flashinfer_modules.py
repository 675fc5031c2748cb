"""Have FlashInfer write the ninja statements of its modules; nothing is compiled here.

Called as ``flashinfer_modules.py REQUEST ANSWER`` by the Python of an environment that can import FlashInfer, in which
``CUDA_HOME`` names the toolkit. REQUEST is a JSON document: ``architectures`` as FlashInfer spells them, the ``folder``
to write to, and ``names``, globs of modules. ANSWER gets one: ``modules`` (``name``, its ``statements`` for ninja and
the ``library`` that they make), ``left_out`` with the reason by name, and the globs that name nothing, ``unknown``.

The modules are FlashInfer's own ahead-of-time set for the architectures, from its own generator functions.
"""

from __future__ import annotations

import json
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LEFT_OUT = {
    "dcp_lse_reduce": "it is linked against libtorch_cuda and NCCL, which the torch that modules are made with lacks"
}
DIMENSIONS = ("f16_dtype", "f8_dtype", "fa2_head_dim", "fa3_head_dim", "use_sliding_window", "use_logits_soft_cap")
FAMILIES = ("add_comm", "add_gemma", "add_oai_oss", "add_moe", "add_act", "add_misc", "add_xqa")


def specs() -> list[Any]:
    """Return FlashInfer's default modules for the architectures in its environment variable."""
    from flashinfer import aot
    from flashinfer.jit import comm

    comm.gen_dcp_lse_reduce_module = lambda: SimpleNamespace(name="dcp_lse_reduce")
    config = aot.get_default_config()
    chosen = [config[name] for name in DIMENSIONS]
    found = aot.gen_all_modules(*chosen, aot.detect_sm_capabilities(), *(config[name] for name in FAMILIES))
    return [spec for spec in found if spec.name not in LEFT_OUT]


def written(spec: Any) -> dict[str, str]:
    """Have a module's statements written and say where they are."""
    spec.write_ninja()
    name_every_header(spec.ninja_path)
    return {"name": spec.name, "statements": str(spec.ninja_path), "library": str(spec.jit_library_path)}


def name_every_header(statements: Path) -> None:
    """Let the host compiler name every header that it reads.

    FlashInfer's own headers are system headers to it, and with ``-MMD`` it names none of those.
    """
    text = statements.read_text(encoding="utf-8")
    if text.count(" -MMD ") != 1:
        raise SystemExit(f"{statements} has another rule for C++ than this driver was written for")
    statements.write_text(text.replace(" -MMD ", " -MD "), encoding="utf-8")


def main(request: Path, answer: Path) -> None:
    """Answer a request."""
    wanted = json.loads(request.read_text(encoding="utf-8"))
    # one space between them: FlashInfer splits at each
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = " ".join(wanted["architectures"])
    os.environ["FLASHINFER_WORKSPACE_BASE"] = wanted["folder"]
    os.environ["FLASHINFER_LOGGING_LEVEL"] = "warning"
    names = wanted["names"]
    found = specs()
    unknown = [glob for glob in names if not any(fnmatchcase(spec.name, glob) for spec in found)]
    chosen = [spec for spec in found if any(fnmatchcase(spec.name, glob) for glob in names)]
    left_out = {name: why for name, why in LEFT_OUT.items() if any(fnmatchcase(name, glob) for glob in names)}
    document = {
        "modules": [] if unknown else [written(spec) for spec in chosen],
        "left_out": left_out,
        "unknown": [glob for glob in unknown if glob not in left_out],
    }
    answer.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
