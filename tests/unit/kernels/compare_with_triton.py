"""Compare the attention of `sgl_kernel.indexed_attention` with the Triton kernels that it stands in for.

Not a test module: it is run with TRITON_INTERPRET=1 and the Python of an environment that holds a patched SGLang 0.5.9
to 0.5.12.post1 (tests/integration/test_older_releases.py). Prints a line for each case; ends with 1 if two differ.
"""

import inspect
import sys

import torch
from sglang.srt.layers.attention.triton_ops.decode_attention import decode_attention_fwd, decode_attention_fwd_grouped
from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd

# The patch leaves calls with a temperature length to Triton; no request is as long, so it changes nothing.
TRITON = 2**30
HEADS, KV_HEADS, DIM, SPLITS = 4, 2, 16, 4
# From 0.5.10 on the kernels take scales of the cache.
SCALED = "k_scale" in inspect.signature(extend_attention_fwd).parameters
K_SCALE, V_SCALE = 1.5, 0.25


def indptr(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32)


def decode(lengths: list[int], *, logit_cap: float, sinks: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    slots = sum(lengths) + 1
    query = torch.randn(len(lengths), HEADS, DIM)
    keys, values = torch.randn(slots, KV_HEADS, DIM), torch.randn(slots, KV_HEADS, DIM)
    indices = torch.randperm(slots)[: sum(lengths)]

    def buffers(output: torch.Tensor) -> tuple[object, ...]:
        splits = torch.full((len(lengths),), SPLITS, dtype=torch.int32)
        scratch = (torch.empty(len(lengths), HEADS, SPLITS, DIM), torch.empty(len(lengths), HEADS, SPLITS))
        return (query, keys, values, output, indptr(lengths), indices, *scratch, splits, SPLITS)

    ours, triton = torch.full_like(query, float("nan")), torch.full_like(query, float("nan"))
    scale, scales = DIM**-0.5, (K_SCALE, V_SCALE) if SCALED else ()
    decode_attention_fwd(*buffers(ours), scale, *scales, logit_cap=logit_cap, sinks=sinks)
    folded = (scale * K_SCALE, V_SCALE) if SCALED else (scale,)
    decode_attention_fwd_grouped(*buffers(triton), *folded, logit_cap=logit_cap, sinks=sinks)
    return ours, triton


def extend(
    prefixes: list[int], new: list[int], *, causal: bool, masked: bool, window: int, logit_cap: float
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, slots = sum(new), sum(prefixes) + 1
    query = torch.randn(tokens, HEADS, DIM)
    key, value = torch.randn(tokens, KV_HEADS, DIM), torch.randn(tokens, KV_HEADS, DIM)
    keys, values = torch.randn(slots, KV_HEADS, DIM), torch.randn(slots, KV_HEADS, DIM)
    indices = torch.randperm(slots)[: sum(prefixes)]
    masks = [
        torch.cat([torch.rand(n, p) < 0.7, (torch.rand(n, n) < 0.5).tril() | torch.eye(n, dtype=torch.bool)], dim=1)
        for p, n in zip(prefixes, new, strict=True)
    ]

    def run(temperature: int) -> torch.Tensor:
        output = torch.full_like(query, float("nan"))
        extend_attention_fwd(
            query,
            key,
            value,
            output,
            keys,
            values,
            indptr(new),
            indptr(prefixes),
            indices,
            torch.cat([mask.reshape(-1) for mask in masks]) if masked else None,
            causal,
            indptr([mask.numel() for mask in masks]).to(torch.int64) if masked else None,
            max(new),
            **({"k_scale": K_SCALE, "v_scale": V_SCALE} if SCALED else {}),
            logit_cap=logit_cap,
            skip_prefix_custom_mask=not masked,
            sliding_window_size=window,
            window_kv_offsets=torch.zeros(len(new), dtype=torch.int32) if masked and window > 0 else None,
            xai_temperature_len=temperature,
        )
        return output

    return run(-1), run(TRITON)


def main() -> int:
    """Run the cases."""
    torch.manual_seed(20_250)
    torch.set_num_threads(1)
    cases = {
        "decode": decode([1, 9, 37], logit_cap=0.0, sinks=None),
        "decode with cap and sinks": decode([3, 20], logit_cap=2.0, sinks=torch.randn(HEADS)),
        "prefill": extend([0, 5], [7, 3], causal=True, masked=False, window=-1, logit_cap=0.0),
        "prefill, all visible": extend([4], [6], causal=False, masked=False, window=-1, logit_cap=2.0),
        "prefill with a window": extend([6, 2], [4, 5], causal=True, masked=False, window=3, logit_cap=0.0),
        "draft trees": extend([11, 1, 6], [4, 4, 4], causal=True, masked=True, window=-1, logit_cap=0.0),
        "draft trees with a window": extend([5, 3], [4, 4], causal=True, masked=True, window=5, logit_cap=0.0),
    }
    wrong = 0
    for name, (ours, triton) in cases.items():
        same = torch.allclose(ours, triton, rtol=1e-5, atol=1e-6)
        wrong += not same
        print(f"{'same' if same else 'DIFFERS'}  {name}: {(ours - triton).abs().max().item():.1e}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
