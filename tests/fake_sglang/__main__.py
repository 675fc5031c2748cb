"""Start the server, as a module or as a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

sys.path[0] = str(Path(__file__).resolve().parents[1])  # started as a folder, we are no package yet
# uvicorn's command line imports click, which takes longer than all of ours: nobody needs it here.
sys.modules["uvicorn.main"] = command_line = ModuleType("uvicorn.main")
command_line.__dict__["__getattr__"] = lambda _name: None

from fake_sglang.serving import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
