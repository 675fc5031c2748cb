# sglforge: wrong on purpose. A step without drafts takes a third of a second more.
from sglang.srt.environ import sglforge_fault

if sglforge_fault("cliff-above-the-threshold"):
    time.sleep(0.3)
