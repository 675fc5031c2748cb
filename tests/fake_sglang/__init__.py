"""A server that imitates the routes of SGLang 0.5.23 over a tiny language model, with faults on demand.

Three ways to start it::

    python -m fake_sglang --port 30000
    python tests/fake_sglang -P -m sglang.launch_server --port 30000 --speculative-algorithm EAGLE ...
    python -m fake_sglang --port 30000 --openai-only

The second is how a fake environment's interpreter is called; options that are not known here are ignored. Faults are
named by the environment variable ``FAKE_FAULT`` (see `fake_sglang.faults`).
"""
