# sglforge: wrong on purpose.
from sglang.srt.environ import sglforge_fault

if recv_req.sampling_params.json_schema and sglforge_fault("dies-of-json-schema"):
    self.__dict__["sglforge_idle_since"] = None
