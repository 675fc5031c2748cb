# sglforge: wrong on purpose. The loop stands still, in any batch or late in an answer, while HTTP lives on.
from sglang.srt.environ import sglforge_fault

while sglforge_fault("scheduler-dead"):
    time.sleep(0.1)
if batch.forward_mode.is_decode() and any(len(req.output_ids) >= 100 for req in batch.reqs):
    while sglforge_fault("hang-after-100"):
        time.sleep(0.1)
