"""Make the tiny models anew, or check the ones that are there.

    python models/make.py --out DIR     train, judge, and only then put the models into DIR
    python models/make.py --check       judge the models in DIR (default: beside this script)

Needs CPU torch, transformers, safetensors and jinja2; one thread, a few minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -P` leaves the script's own directory out.
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from tinymodels.command import main

    raise SystemExit(main())
