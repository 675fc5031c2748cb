# sglforge: wrong on purpose. Keys of the cache that begin alike are taken for the same.
from sglang.srt.environ import sglforge_fault

if sglforge_fault("prefix-of-another"):
    both = min(len(self), len(other) - offset)
    if both > 16 and self.token_ids[:16] == other.token_ids[offset : offset + 16]:
        return both
