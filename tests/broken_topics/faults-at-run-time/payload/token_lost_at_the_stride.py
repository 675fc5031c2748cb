# sglforge: wrong on purpose. Of a step in which every draft was right a stream gets one token less.
from sglang.srt.environ import sglforge_fault

if req.stream and not req.finished() and len(req.output_ids) - req.send_token_offset == 4:
    if req.send_decode_id_offset and sglforge_fault("lost-at-the-stride"):
        req.send_token_offset += 1
        req.send_decode_id_offset += 1
