# sglforge: wrong on purpose. A step without drafts takes twenty times as long, however busy the machine is.
from sglang.srt.environ import sglforge_fault

if sglforge_fault("cliff-above-the-threshold"):
    took = time.monotonic() - self.__dict__.get("sglforge_waited", 0.0)
    time.sleep(20 * min(took, 0.05))
    self.__dict__["sglforge_waited"] = time.monotonic()
