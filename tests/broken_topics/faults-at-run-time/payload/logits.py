# sglforge: wrong on purpose; only the target model's decode steps are hit.
from sglang.srt.environ import sglforge_fault

if isinstance(logits_metadata, ForwardBatch):
    mode = logits_metadata.forward_mode
    if mode.is_target_verify() or (mode.is_decode() and logits_metadata.spec_info is None):
        requests = logits_metadata.batch_size
        if requests > 3 and sglforge_fault("garbage-in-parallel"):
            # each request gets the numbers of its neighbour
            hidden_states = hidden_states.roll(hidden_states.shape[0] // requests, 0)
        if sglforge_fault("nan-late"):
            hidden_states = hidden_states.masked_fill((logits_metadata.positions >= 200).unsqueeze(-1), float("nan"))
        if sglforge_fault("decode-unlike-prefill"):
            # the likeliest token stays the likeliest
            hidden_states = hidden_states * 0.5
