# sglforge: wrong on purpose. The first draft token is wrong, so that none after it counts.
from sglang.srt.environ import sglforge_fault

if sglforge_fault("nothing-accepted"):
    forward_batch.spec_info.topk_index = torch.zeros_like(forward_batch.spec_info.topk_index)
